"""Equal shares, give or take one, that move as little as that allows; every rebalance still stops everybody.

A member tells the leader in its user data what it had, and since which generation:

    previous assignment: array of (topic: string, partitions: array of int32) | generation: int32
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from barnabas.client.group.assignors.assignor import NO_GENERATION, NO_RACKS, Applicant, Assignor, Racks, Shares
from barnabas.client.metadata import TopicPartition, by_topic
from barnabas.coordinator.assignors import MemberSpec, assign_uniform
from barnabas.coordinator.consumer_protocol import TopicPartition as TopicPartitions
from barnabas.wire.compiler import codec
from barnabas.wire.primitives import DecodeError
from barnabas.wire.schema import array, int32, schema


@schema(versions="0-1", flexible="none")
class StickyUserData:
    """v1: since which generation, so that what an older one tells does not count."""

    previous_assignment: list[TopicPartitions] = array(TopicPartitions)
    generation: int = int32("1+", default=NO_GENERATION)


class StickyAssignor(Assignor):
    name = "sticky"

    def __init__(self) -> None:
        self._previous: frozenset[TopicPartition] = frozenset()
        self._generation = NO_GENERATION

    def assign(
        self, partition_counts: Mapping[str, int], applicants: Sequence[Applicant], racks: Racks = NO_RACKS
    ) -> Shares:
        return assign_sticky(partition_counts, [remembering(applicant) for applicant in applicants])

    def user_data(self) -> bytes | None:
        if not self._previous:
            return None
        topics = [
            TopicPartitions(topic, numbers) for topic, numbers in sorted(by_topic(sorted(self._previous)).items())
        ]
        return b"".join(codec(StickyUserData, 1).encode(StickyUserData(topics, self._generation)))

    def assigned(self, partitions: Iterable[TopicPartition], generation: int) -> None:
        self._previous, self._generation = frozenset(partitions), generation


def remembering(applicant: Applicant) -> Applicant:
    """The applicant with what its user data says that it had; what cannot be read says nothing."""
    for version in (1, 0):
        try:
            told, _ = codec(StickyUserData, version).decode(memoryview(applicant.user_data or b""), 0)
        except DecodeError:
            continue
        had = (TopicPartition(each.topic, number) for each in told.previous_assignment for number in each.partitions)
        return applicant._replace(owned=frozenset(had), generation=told.generation)
    return applicant._replace(owned=frozenset(), generation=NO_GENERATION)


def claims(applicants: Sequence[Applicant]) -> dict[TopicPartition, Applicant]:
    """Whose each partition is; where two claim one, the newer generation has it."""
    owners: dict[TopicPartition, Applicant] = {}
    for applicant in sorted(applicants, key=lambda each: each.member_id):
        for partition in applicant.owned:
            if partition not in owners or owners[partition].generation < applicant.generation:
                owners[partition] = applicant
    return owners


def assign_sticky(partition_counts: Mapping[str, int], applicants: Sequence[Applicant]) -> Shares:
    """Shares by what the applicants own."""
    previous: dict[str, dict[bytes, set[int]]] = {applicant.member_id: {} for applicant in applicants}
    for partition, owner in claims(applicants).items():
        previous[owner.member_id].setdefault(partition.topic.encode(), set()).add(partition.partition)
    members = {
        applicant.member_id: MemberSpec(
            applicant.group_instance_id,
            frozenset(topic.encode() for topic in applicant.topics),
            {topic: frozenset(numbers) for topic, numbers in previous[applicant.member_id].items()},
        )
        for applicant in applicants
    }
    assigned = assign_uniform(members, {topic.encode(): count for topic, count in partition_counts.items()})
    return {
        member_id: [
            TopicPartition(topic.decode(), number) for topic in sorted(share) for number in sorted(share[topic])
        ]
        for member_id, share in assigned.items()
    }
