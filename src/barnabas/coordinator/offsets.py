"""The offsets that groups have committed: the state behind the OffsetCommit records of one shard.

An offset lives under group, topic and partition. What a transaction commits waits under its producer id, beside the
offset that counts, until the transaction's marker is seen: a commit lets it count, an abort drops it. Where plain and
transactional commits of one partition meet, the one that was written later wins, as it does for whoever reads the log;
so every offset knows its place in the order of writing. A tombstone removes an offset and all that waits in its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias, TypeVar

from barnabas.coordinator.group import Group
from barnabas.coordinator.group_records import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from barnabas.coordinator.outcome import CoordinatorRecord
from barnabas.coordinator.records import encode_record
from barnabas.records.batch import NO_PRODUCER_ID
from barnabas.wire.schema import ZERO_UUID

_T = TypeVar("_T")

NO_EXPIRY = -1
_VERSION_WITH_EXPIRY = 1  # the only one that has a place for it, and none for a leader epoch


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY  # only a client of OffsetCommit 2 to 4 can ask for it
    topic_id: bytes = ZERO_UUID

    def is_of(self, topic_id: bytes) -> bool:
        """Whether this was committed for the topic with that id, as far as is known on either side."""
        return topic_id == self.topic_id or ZERO_UUID in (topic_id, self.topic_id)


def commit_record(group_id: str, topic: str, partition: int, committed: CommittedOffset) -> CoordinatorRecord:
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    version = None if committed.expire_timestamp_ms == NO_EXPIRY else _VERSION_WITH_EXPIRY
    return encode_record(OffsetCommitKey(group_id, topic, partition), value, version)


class _Placed(NamedTuple):
    committed: CommittedOffset
    place: int  # in the order of writing


_Partition: TypeAlias = tuple[str, int]  # topic, partition


class OffsetStore:
    __slots__ = ("_committed", "_pending", "_place", "_producers")

    def __init__(self) -> None:
        self._committed: dict[str, dict[_Partition, _Placed]] = {}  # by group
        self._pending: dict[int, dict[str, dict[_Partition, _Placed]]] = {}  # by producer id and group
        self._producers: dict[str, dict[_Partition, set[int]]] = {}  # who has something pending, by group
        self._place = 0

    def __len__(self) -> int:
        """How many offsets count."""
        return sum(map(len, self._committed.values()))

    def commit(
        self,
        group_id: str,
        topic: str,
        partition: int,
        committed: CommittedOffset,
        producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        """Take the offset, or keep it pending for the producer's transaction; its `commit_record` goes to the log."""
        self._put(group_id, (topic, partition), committed, producer_id)

    def replay(
        self,
        key: OffsetCommitKey | LegacyOffsetCommitKey,
        value: OffsetCommitValue | LegacyOffsetCommitValue | None,
        producer_id: int,
    ) -> None:
        """Fold a record of the log; the producer id is that of its batch, if the batch is part of a transaction."""
        partition = (key.topic, key.partition)
        if value is None:
            self._remove(key.group, partition)
            return
        if isinstance(value, OffsetCommitValue):
            committed = CommittedOffset(
                value.offset,
                value.leader_epoch,
                value.metadata,
                value.commit_timestamp,
                value.expire_timestamp,
                value.topic_id,
            )
        else:
            committed = CommittedOffset(value.offset, -1, value.metadata, value.commit_timestamp)
        self._put(key.group, partition, committed, producer_id)

    def complete_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """The transaction's marker is in the log: what it had pending counts from now on, or is gone."""
        for group_id, partitions in self._pending.pop(producer_id, {}).items():
            for partition, placed in partitions.items():
                self._forget_producer(group_id, partition, producer_id)
                if is_commit:
                    current = self._committed.setdefault(group_id, {})
                    if partition not in current or current[partition].place < placed.place:
                        current[partition] = placed

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        placed = self._committed.get(group_id, {}).get((topic, partition))
        return None if placed is None else placed.committed

    def partitions(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """Every offset of a group that counts: topic, partition, offset."""
        for (topic, partition), placed in self._committed.get(group_id, {}).items():
            yield topic, partition, placed.committed

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether a transaction that is still open has committed an offset for the partition."""
        return (topic, partition) in self._producers.get(group_id, {})

    def has_any(self, group_id: str) -> bool:
        """Whether a group has offsets, pending ones included."""
        return group_id in self._committed or group_id in self._producers

    def delete(self, group_id: str, topic: str, partition: int) -> CoordinatorRecord | None:
        """Remove an offset and what is pending in its place; None if there is neither."""
        found = self._remove(group_id, (topic, partition))
        return encode_record(OffsetCommitKey(group_id, topic, partition), None) if found else None

    def delete_group(self, group_id: str) -> list[CoordinatorRecord]:
        """Remove all that a group has."""
        pending = self._producers.get(group_id, {})
        return self._delete_all(group_id, [*self._committed.get(group_id, {}), *pending])

    def delete_topic(self, topic: str, topic_id: bytes) -> list[CoordinatorRecord]:
        """Remove the offsets of a topic that is gone, but not those of a later one of the same name."""
        records = []
        for offsets in (self._committed, *self._pending.values()):
            for group_id, partitions in list(offsets.items()):
                gone = [p for p, placed in partitions.items() if p[0] == topic and placed.committed.is_of(topic_id)]
                records += self._delete_all(group_id, gone)
        return records

    def expire(self, group: Group, now_ms: int, retention_ms: int) -> list[CoordinatorRecord]:
        """Remove the offsets of a group that are past their time, unless the group still reads the topic."""
        expired = [
            (topic, partition)
            for topic, partition, committed in self.partitions(group.group_id)
            if self._is_expired(group, committed, now_ms, retention_ms)
            and not group.is_subscribed_to(topic)
            and not self.is_pending(group.group_id, topic, partition)
        ]
        return self._delete_all(group.group_id, expired)

    @staticmethod
    def _is_expired(group: Group, committed: CommittedOffset, now_ms: int, retention_ms: int) -> bool:
        start_ms = group.retention_start_ms(committed.commit_timestamp_ms)
        if start_ms is None:
            return False
        if committed.expire_timestamp_ms != NO_EXPIRY:
            return now_ms >= committed.expire_timestamp_ms
        return now_ms - start_ms >= retention_ms

    def _delete_all(self, group_id: str, partitions: list[_Partition]) -> list[CoordinatorRecord]:
        deleted = (self.delete(group_id, topic, partition) for topic, partition in partitions)
        return [record for record in deleted if record is not None]

    def _put(self, group_id: str, partition: _Partition, committed: CommittedOffset, producer_id: int) -> None:
        self._place += 1
        if producer_id == NO_PRODUCER_ID:
            offsets = self._committed
        else:
            offsets = self._pending.setdefault(producer_id, {})
            self._producers.setdefault(group_id, {}).setdefault(partition, set()).add(producer_id)
        offsets.setdefault(group_id, {})[partition] = _Placed(committed, self._place)

    def _remove(self, group_id: str, partition: _Partition) -> bool:
        found = _drop(self._committed, group_id, partition)
        for producer_id in self._producers.get(group_id, {}).get(partition, set()).copy():
            pending = self._pending[producer_id]
            found |= _drop(pending, group_id, partition)
            if not pending:
                del self._pending[producer_id]
            self._forget_producer(group_id, partition, producer_id)
        return found

    def _forget_producer(self, group_id: str, partition: _Partition, producer_id: int) -> None:
        producers = self._producers[group_id][partition]
        producers.remove(producer_id)
        if not producers:
            _drop(self._producers, group_id, partition)


def _drop(by_group: dict[str, dict[_Partition, _T]], group_id: str, partition: _Partition) -> bool:
    """Take an entry out, and the group with its last one; False if it is not there."""
    partitions = by_group.get(group_id, {})
    if partition not in partitions:
        return False
    del partitions[partition]
    if not partitions:
        del by_group[group_id]
    return True
