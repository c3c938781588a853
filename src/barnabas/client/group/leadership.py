"""What the leader of a classic group's generation knows and decides: who is in, what there is to read, who reads it."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.client.group.assignors.assignor import Applicant, Assignor, Shares
from barnabas.client.metadata import TopicInfo, TopicPartition, by_topic
from barnabas.coordinator.consumer_protocol import (
    ConsumerProtocolAssignment,
    decode_subscription,
    encode_assignment,
)
from barnabas.coordinator.consumer_protocol import TopicPartition as TopicPartitions
from barnabas.wire.messages.k11_join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas.wire.messages.k14_sync_group import SyncGroupRequestAssignment

_ASSIGNMENT_VERSION = 3


class Leadership:
    """A static leader that came back finds the shares as they were (KIP-814); it only watches."""

    def __init__(self, response: JoinGroupResponse) -> None:
        self._applicants = [_applicant(member) for member in response.members]
        self.topics = frozenset(topic for applicant in self._applicants for topic in applicant.topics)
        self.shares: Shares | None = {} if response.skip_assignment else None
        self._partition_counts: dict[str, int] | None = None

    def assign(self, assignor: Assignor, topics: Mapping[str, TopicInfo], racks: Mapping[int, str]) -> None:
        counts = self._partition_counts = self._relevant(topics)
        if self.shares is None:
            places = {
                TopicPartition(name, each.partition): frozenset(racks[r] for r in each.replicas if r in racks)
                for name in (counts if racks else ())
                for each in topics[name].partitions
            }
            self.shares = assignor.assign(counts, self._applicants, places)

    def encoded_shares(self) -> list[SyncGroupRequestAssignment]:
        return [
            SyncGroupRequestAssignment(member_id, _encoded(share)) for member_id, share in (self.shares or {}).items()
        ]

    def is_outdated(self, topics: Mapping[str, TopicInfo]) -> bool:
        """Whether topics or partitions have come or gone since the shares were made."""
        known, self._partition_counts = self._partition_counts, self._relevant(topics)
        return known is not None and known != self._partition_counts

    def has_all_topics(self) -> bool:
        return self._partition_counts is not None and len(self._partition_counts) == len(self.topics)

    def _relevant(self, topics: Mapping[str, TopicInfo]) -> dict[str, int]:
        return {name: len(topic.partitions) for name, topic in topics.items() if name in self.topics}


def _applicant(member: JoinGroupResponseMember) -> Applicant:
    told = decode_subscription(member.metadata)
    owned = (TopicPartition(each.topic, number) for each in told.owned_partitions for number in each.partitions)
    return Applicant(
        member.member_id,
        member.group_instance_id,
        frozenset(told.topics),
        frozenset(owned),
        told.generation_id,
        None if told.user_data is None else bytes(told.user_data),
        told.rack_id,
    )


def _encoded(share: list[TopicPartition]) -> bytes:
    topics = [TopicPartitions(topic, sorted(numbers)) for topic, numbers in sorted(by_topic(share).items())]
    return encode_assignment(ConsumerProtocolAssignment(topics), _ASSIGNMENT_VERSION)
