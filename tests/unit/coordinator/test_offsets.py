"""Offsets: what counts, what a transaction has pending, and that the log alone gives the same."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.group import GroupType
from barnabas.coordinator.group_records import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from barnabas.coordinator.offsets import CommittedOffset, OffsetStore, commit_record
from barnabas.coordinator.outcome import CoordinatorRecord
from barnabas.coordinator.records import decode_group_record, encode_record

NOBODY = -1
PRODUCER, OTHER_PRODUCER = 7, 8
TOPIC_ID, OTHER_ID = b"a" * 16, b"b" * 16
RETENTION_MS = 1000


def at(offset: int, **more: object) -> CommittedOffset:
    return CommittedOffset(offset, 3, "note", 100)._replace(**more)  # type: ignore[arg-type]


@dataclass
class SomeGroup:
    """As much of a group as expiry asks for."""

    group_id: str = "g"
    subscribed: set[str] = field(default_factory=set)
    empty_since_ms: int | None = 0

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed

    def retention_start_ms(self, commit_timestamp_ms: int) -> int | None:
        return None if self.empty_since_ms is None else max(self.empty_since_ms, commit_timestamp_ms)


def visible(store: OffsetStore, *groups: str) -> dict[tuple[str, str, int], CommittedOffset]:
    return {
        (group, topic, partition): committed
        for group in groups or ("g",)
        for topic, partition, committed in store.partitions(group)
    }


def test_a_commit_counts_at_once_and_replaces_the_one_before() -> None:
    store = OffsetStore()
    store.commit("g", "t", 0, at(5))
    store.commit("g", "t", 0, at(4))
    store.commit("g", "t", 1, at(9))
    assert visible(store) == {("g", "t", 0): at(4), ("g", "t", 1): at(9)}
    assert (store.get("g", "t", 0), store.get("g", "t", 2), store.get("other", "t", 0)) == (at(4), None, None)
    assert len(store) == 2


def test_the_record_of_a_commit_is_kafkas_version_4_with_all_that_was_committed() -> None:
    record = commit_record("g", "t", 2, at(5, topic_id=TOPIC_ID))
    assert record.value is not None
    assert record.value[:2] == b"\0\4"
    assert decode_group_record(*record) == (
        OffsetCommitKey("g", "t", 2),
        OffsetCommitValue(offset=5, leader_epoch=3, metadata="note", commit_timestamp=100, topic_id=TOPIC_ID),
    )


def test_a_commit_with_an_expiry_of_its_own_is_version_1() -> None:
    record = commit_record("g", "t", 2, at(5, leader_epoch=-1, expire_timestamp_ms=700))
    assert record.value is not None
    assert record.value[:2] == b"\0\1"
    assert decode_group_record(*record)[1] == OffsetCommitValue(
        offset=5, metadata="note", commit_timestamp=100, expire_timestamp=700
    )


def test_a_transactional_commit_is_pending_until_the_marker() -> None:
    store = OffsetStore()
    store.commit("g", "t", 0, at(5))
    store.commit("g", "t", 0, at(8), PRODUCER)
    assert store.get("g", "t", 0) == at(5)
    assert store.is_pending("g", "t", 0)
    assert not store.is_pending("g", "t", 1)
    assert not store.is_pending("other", "t", 0)
    store.complete_transaction(PRODUCER, is_commit=True)
    assert store.get("g", "t", 0) == at(8)
    assert not store.is_pending("g", "t", 0)


def test_an_aborted_commit_vanishes() -> None:
    store = OffsetStore()
    store.commit("g", "t", 0, at(8), PRODUCER)
    store.complete_transaction(PRODUCER, is_commit=False)
    assert not store.has_any("g")


def test_markers_touch_their_own_producer_only_and_may_have_nothing_to_do() -> None:
    store = OffsetStore()
    store.commit("g", "t", 0, at(5), PRODUCER)
    store.commit("g", "t", 0, at(6), OTHER_PRODUCER)
    store.complete_transaction(99, is_commit=True)
    store.complete_transaction(OTHER_PRODUCER, is_commit=False)
    assert store.is_pending("g", "t", 0)
    store.complete_transaction(PRODUCER, is_commit=True)
    assert store.get("g", "t", 0) == at(5)


@pytest.mark.parametrize(("first", "winner"), [("plain", 8), ("transactional", 5)])
def test_of_a_plain_and_a_transactional_commit_the_later_written_wins(first: str, winner: int) -> None:
    store = OffsetStore()
    commits = [(at(5), NOBODY), (at(8), PRODUCER)]
    for committed, producer_id in commits if first == "plain" else reversed(commits):
        store.commit("g", "t", 0, committed, producer_id)
    store.complete_transaction(PRODUCER, is_commit=True)
    assert store.get("g", "t", 0) == at(winner)


def test_a_deletion_takes_what_is_pending_with_it() -> None:
    store = OffsetStore()
    store.commit("g", "t", 0, at(5))
    store.commit("g", "t", 0, at(6), PRODUCER)
    store.commit("g", "t", 0, at(7), OTHER_PRODUCER)
    assert store.delete("g", "t", 0) == encode_record(OffsetCommitKey("g", "t", 0), None)
    assert store.delete("g", "t", 0) is None
    store.complete_transaction(PRODUCER, is_commit=True)
    assert not store.has_any("g")


def test_a_group_is_deleted_with_one_tombstone_for_each_partition() -> None:
    store = OffsetStore()
    store.commit("g", "t", 0, at(5))
    store.commit("g", "t", 0, at(6), PRODUCER)
    store.commit("g", "u", 3, at(6), PRODUCER)
    store.commit("other", "t", 0, at(1))
    keys = [decode_group_record(*record) for record in store.delete_group("g")]
    assert keys == [(OffsetCommitKey("g", "t", 0), None), (OffsetCommitKey("g", "u", 3), None)]
    assert visible(store, "g", "other") == {("other", "t", 0): at(1)}
    assert store.delete_group("g") == []


def test_offsets_of_a_topic_that_is_gone_go_in_every_group_but_not_those_of_its_namesake() -> None:
    store = OffsetStore()
    store.commit("g", "t", 0, at(1, topic_id=TOPIC_ID))
    store.commit("g", "t", 1, at(2, topic_id=OTHER_ID))
    store.commit("g", "u", 0, at(3, topic_id=TOPIC_ID))
    store.commit("h", "t", 0, at(4))
    store.commit("h", "t", 5, at(5), PRODUCER)
    gone = {
        (key.group, key.partition) for key, _ in (decode_group_record(*r) for r in store.delete_topic("t", TOPIC_ID))
    }
    assert gone == {("g", 0), ("h", 0), ("h", 5)}
    assert set(visible(store, "g", "h")) == {("g", "t", 1), ("g", "u", 0)}
    assert not store.has_any("h")


def expired(store: OffsetStore, group: SomeGroup, now_ms: int) -> set[str]:
    records = store.expire(group, now_ms, RETENTION_MS)  # type: ignore[arg-type]
    return {decode_group_record(*record)[0].topic for record in records}


def test_offsets_expire_when_their_retention_has_passed() -> None:
    store = OffsetStore()
    store.commit("g", "old", 0, at(1, commit_timestamp_ms=0))
    store.commit("g", "new", 0, at(1, commit_timestamp_ms=1))
    assert expired(store, SomeGroup(), RETENTION_MS - 1) == set()
    assert expired(store, SomeGroup(), RETENTION_MS) == {"old"}
    assert expired(store, SomeGroup(), RETENTION_MS + 1) == {"new"}
    assert not store.has_any("g")


def test_offsets_of_a_group_with_members_of_its_topics_and_of_open_transactions_stay() -> None:
    store = OffsetStore()
    store.commit("g", "t", 0, at(1))
    late = 100 * RETENTION_MS
    assert expired(store, SomeGroup(empty_since_ms=None), late) == set()
    assert expired(store, SomeGroup(subscribed={"t"}), late) == set()
    store.commit("g", "t", 0, at(2), PRODUCER)
    assert expired(store, SomeGroup(), late) == set()
    store.complete_transaction(PRODUCER, is_commit=False)
    assert expired(store, SomeGroup(), late) == {"t"}


def test_an_expiry_that_the_client_asked_for_comes_before_the_brokers_retention() -> None:
    store = OffsetStore()
    store.commit("g", "t", 0, at(1, expire_timestamp_ms=150))
    assert expired(store, SomeGroup(), 149) == set()
    assert expired(store, SomeGroup(), 150) == {"t"}


def test_records_of_long_ago_are_read() -> None:
    store = OffsetStore()
    store.replay(LegacyOffsetCommitKey("g", "t", 0), LegacyOffsetCommitValue(5, "m", 100), NOBODY)
    assert store.get("g", "t", 0) == CommittedOffset(5, -1, "m", 100)
    store.replay(LegacyOffsetCommitKey("g", "t", 0), None, NOBODY)
    assert not store.has_any("g")


def test_the_type_of_group_is_named_as_listings_name_it() -> None:
    assert [kind.value for kind in GroupType] == ["classic", "consumer"]


GROUPS, TOPICS, PARTITIONS = st.sampled_from("gh"), st.sampled_from("tu"), st.integers(0, 1)
PRODUCERS = st.sampled_from([NOBODY, PRODUCER, OTHER_PRODUCER])
COMMITS = st.builds(at, st.integers(0, 9), topic_id=st.sampled_from([TOPIC_ID, OTHER_ID]))
STEPS = st.one_of(
    st.tuples(st.just("commit"), GROUPS, TOPICS, PARTITIONS, COMMITS, PRODUCERS),
    st.tuples(st.just("delete"), GROUPS, TOPICS, PARTITIONS),
    st.tuples(st.just("delete_group"), GROUPS),
    st.tuples(st.just("delete_topic"), TOPICS, st.sampled_from([TOPIC_ID, OTHER_ID])),
    st.tuples(st.just("complete"), PRODUCERS, st.booleans()),
)


@given(st.lists(STEPS, max_size=40))
def test_the_log_alone_gives_the_same_state(steps: list[tuple[object, ...]]) -> None:
    live, loaded = OffsetStore(), OffsetStore()
    for name, *arguments in steps:
        producer = NOBODY
        records: list[CoordinatorRecord | None] = []
        if name == "complete":
            producer_id, is_commit = arguments
            for store in (live, loaded):
                store.complete_transaction(producer_id, is_commit=is_commit)  # type: ignore[arg-type]
        elif name == "commit":
            producer = arguments[-1]  # type: ignore[assignment]
            live.commit(*arguments)  # type: ignore[arg-type]
            records = [commit_record(*arguments[:-1])]  # type: ignore[arg-type]
        elif name == "delete":
            records = [live.delete(*arguments)]  # type: ignore[arg-type]
        else:
            records = getattr(live, str(name))(*arguments)
        for record in records:
            if record is not None:
                loaded.replay(*decode_group_record(*record), producer)
        assert visible(live, "g", "h") == visible(loaded, "g", "h")
        for place in ((group, topic, partition) for group in "gh" for topic in "tu" for partition in (0, 1)):
            assert live.is_pending(*place) == loaded.is_pending(*place)
