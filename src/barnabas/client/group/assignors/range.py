"""Runs of neighbouring partitions, topic by topic: partition n of topics of one size goes to the same member.

Where members and replicas tell their racks, and not every rack has every partition, a member first gets partitions
that have a replica in its own rack (KIP-881); shares stay as large as they are without racks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from barnabas.client.group.assignors.assignor import NO_RACKS, Applicant, Assignor, Racks, Shares, subscribers
from barnabas.client.metadata import TopicPartition


class RangeAssignor(Assignor):
    name = "range"

    def assign(
        self, partition_counts: Mapping[str, int], applicants: Sequence[Applicant], racks: Racks = NO_RACKS
    ) -> Shares:
        topics = [
            _Topic(topic, partition_counts[topic], readers, racks)
            for topic, readers in subscribers(partition_counts, applicants).items()
        ]
        if any(topic.has_far_partitions for topic in topics):
            _give_near(topics)
        for topic in topics:
            topic.give_runs(lambda *_: True)
        shares: Shares = {applicant.member_id: [] for applicant in applicants}
        for topic in topics:
            for member_id, given in topic.given.items():
                shares[member_id] += given
        return {member_id: sorted(share) for member_id, share in shares.items()}


class _Topic:
    """What is left of a topic, and who may still get how much of it."""

    def __init__(self, name: str, count: int, readers: Sequence[Applicant], racks: Racks) -> None:
        self.name = name
        self.readers = {reader.member_id: reader.rack or None for reader in readers}
        self.given: dict[str, list[TopicPartition]] = {member_id: [] for member_id in self.readers}
        self.racks: list[frozenset[str]] = []
        """Of each partition; empty where no reader tells its own."""
        if any(self.readers.values()):
            self.racks = [racks.get(TopicPartition(name, number), frozenset()) for number in range(count)]
        self._left = [TopicPartition(name, number) for number in range(count)]
        self._quota, self._extra = divmod(count, len(readers))

    @property
    def has_far_partitions(self) -> bool:
        """Whether racks tell one reader from another: some have replicas, and some not of every partition."""
        everywhere = frozenset().union(*self.racks)
        return not everywhere.isdisjoint(self.readers.values()) and any(each != everywhere for each in self.racks)

    def is_near(self, member_id: str, partition: TopicPartition) -> bool:
        rack = self.readers[member_id]
        return rack is None or rack in self.racks[partition.partition]

    def room(self, member_id: str) -> int:
        return max(0, self._quota + (self._extra > 0) - len(self.given[member_id]))

    def give(self, member_id: str, partitions: Sequence[TopicPartition]) -> None:
        self.given[member_id] += partitions
        self._left = [partition for partition in self._left if partition not in partitions]
        self._extra -= len(self.given[member_id]) > self._quota

    def give_runs(self, may_have: Callable[[str, TopicPartition], bool]) -> None:
        for member_id in self.readers:
            wanted = [partition for partition in self._left if may_have(member_id, partition)]
            if taken := wanted[: self.room(member_id)]:
                self.give(member_id, taken)


def _give_near(topics: Sequence[_Topic]) -> None:
    """What is near to somebody; of topics with the same readers and size, the same numbers to the same member."""
    alike: dict[object, list[_Topic]] = {}
    for topic in topics:
        alike.setdefault((tuple(topic.readers.items()), len(topic.racks)), []).append(topic)
    for group in alike.values():
        if len(group) > 1:
            _give_together(group)
        elif group[0].has_far_partitions:
            group[0].give_runs(group[0].is_near)


def _give_together(topics: Sequence[_Topic]) -> None:
    """Partition n of all these topics to a member that is near to all of them."""
    for number in range(len(topics[0].racks)):
        for member_id in topics[0].readers:
            if all(t.is_near(member_id, TopicPartition(t.name, number)) and t.room(member_id) for t in topics):
                for topic in topics:
                    topic.give(member_id, [TopicPartition(topic.name, number)])
                break
