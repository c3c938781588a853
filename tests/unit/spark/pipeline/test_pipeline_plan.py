"""Which offsets a batch covers, and what a sink that is further on or further behind gets of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.pipeline.errors import PipelineError
from barnabas.spark.pipeline.origin import check_within, tell_removed
from barnabas.spark.pipeline.plan import batch_of, earliest, next_plan, plans_ahead, position, to_go
from barnabas.spark.pipeline.sinks import Batch, Offsets
from barnabas.spark.pipeline.state import Plan, State

ZERO, ONE = ("t", 0), ("t", 1)


def test_a_batch_starts_where_the_slowest_sink_is() -> None:
    assert earliest([{ZERO: 5, ONE: 9}, {ZERO: 7, ONE: 3}]) == {ZERO: 5, ONE: 3}


def test_a_sink_goes_on_from_its_own_offsets_and_begins_where_it_has_none() -> None:
    assert position({ZERO: 5}, {ZERO: 2, ONE: 3}, {ZERO: 0, ONE: 0}) == {ZERO: 5, ONE: 3}
    assert position(None, {ZERO: 2}, {ZERO: 0}) == {ZERO: 2}


def test_only_a_sink_that_has_nothing_begins_with_what_is_still_there(caplog: pytest.LogCaptureFixture) -> None:
    origin, there = {ZERO: 2, ONE: 3}, {ZERO: 9, ONE: 0}
    assert position({ZERO: 5}, origin, there) == {ZERO: 5, ONE: 3}
    assert position({ONE: 5}, origin, there) == {ZERO: 2, ONE: 5}
    begins = position({}, origin, there)
    assert begins == {ZERO: 9, ONE: 3} == position({("another", 0): 5}, origin, there)
    tell_removed("lake", origin, begins)
    assert "sink 'lake' is new" in caplog.text
    assert caplog.messages[-1].endswith("it begins t-0 at offset 9 instead of 2")
    caplog.clear()
    tell_removed("lake", origin, origin)
    assert not caplog.text


def test_each_sink_gets_what_lies_between_its_place_and_the_end_of_the_plan() -> None:
    plan = Plan(4, {ZERO: 0, ONE: 0}, {ZERO: 10, ONE: 10}, {})
    assert batch_of(plan, {ZERO: 0, ONE: 10}, "q") == Batch(4, "q", {ZERO: 0}, {ZERO: 10})
    assert batch_of(plan, {ZERO: 10, ONE: 12}, "q") is None


def test_nothing_new_is_no_batch() -> None:
    assert next_plan(0, {ZERO: 5}, {ZERO: 5}, {}, None) is None
    assert next_plan(0, {ZERO: 5}, {}, {}, 10) is None


@given(
    st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1),
    st.integers(1, 40),
)
def test_batches_cover_every_offset_once(sizes: dict[int, tuple[int, int]], limit: int) -> None:
    start = {("t", number): first for number, (first, _) in sizes.items()}
    latest = {("t", number): first + size for number, (first, size) in sizes.items()}
    plans = plans_ahead(7, start, latest, limit)
    at: Offsets = start
    for number, plan in enumerate(plans, 7):
        assert plan.number == number
        assert plan.start == at
        assert 0 < plan.size <= max(limit, len(sizes))
        at = plan.end
    assert at == latest
    assert to_go(start, latest) == sum(plan.size for plan in plans)


def test_a_batch_is_done_when_all_of_its_partitions_are() -> None:
    batch = Batch(0, "q", {ZERO: 0, ONE: 0}, {ZERO: 5, ONE: 5})
    assert batch.is_done_at({ZERO: 5, ONE: 6})
    assert not batch.is_done_at({ZERO: 5})
    assert not batch.is_done_at(None)
    assert not Batch(0, "q", {}, {}).is_done_at({ZERO: 5})


def test_a_topic_that_ends_before_what_was_read_is_another_one() -> None:
    check_within("lake", {ZERO: 5}, {ZERO: 5})
    with pytest.raises(PipelineError, match=r"sink 'lake' has partition 0 of topic 't' up to offset 6.*ends at 5"):
        check_within("lake", {ZERO: 6}, {ZERO: 5})


def test_the_plan_and_the_origin_survive_a_restart(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    assert state.last_plan() is None
    plan = Plan(3, {ZERO: 1}, {ZERO: 9}, {ONE: 4})
    query = state.query_id()
    state.save_plan(plan)
    state.save_origin({ZERO: 1}, {"t": "id"})
    again = State(tmp_path / "state")
    assert (again.last_plan(), again.origin(), again.query_id()) == (plan, {ZERO: 1}, query)
    assert again.topic_ids() == {"t": "id"}


def test_a_damaged_state_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"number": 3, "sta')
    with pytest.raises(PipelineError, match=r"plan\.json is damaged; remove it"):
        State(tmp_path).last_plan()
