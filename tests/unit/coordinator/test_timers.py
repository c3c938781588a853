"""Deadlines come up in order, once, and only as they were last set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.timers import Timers


def next_deadline(timers: Timers[str]) -> int | None:
    return timers.next_deadline_ms


def test_a_moved_deadline_counts_once_and_a_cancelled_one_never() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 10)
    timers.set("b", 20)
    timers.set("c", 15)
    timers.set("a", 30)
    timers.cancel("c")
    assert next_deadline(timers) == 20
    assert timers.take_due(19) == []
    assert timers.take_due(30) == ["b", "a"]
    assert next_deadline(timers) is None
    assert len(timers) == 0


@given(
    st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), st.integers(0, 50))), max_size=400), st.integers(0, 50)
)
def test_what_is_due_is_what_a_plain_dictionary_says(changes: list[tuple[int, int | None]], now_ms: int) -> None:
    timers: Timers[int] = Timers()
    model: dict[int, int] = {}
    for key, deadline in changes:
        if deadline is None:
            timers.cancel(key)
            model.pop(key, None)
        else:
            timers.set(key, deadline)
            model[key] = deadline
    assert timers.next_deadline_ms == min(model.values(), default=None)
    due = timers.take_due(now_ms)
    assert sorted(due) == sorted(key for key, deadline in model.items() if deadline <= now_ms)
    assert [model[key] for key in due] == sorted(model[key] for key in due)
