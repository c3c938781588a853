"""What an assignor is, and what it knows of a group's members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from barnabas.client.metadata import TopicPartition

Shares: TypeAlias = dict[str, list[TopicPartition]]
"""What each member gets, by its id."""

Racks: TypeAlias = Mapping[TopicPartition, frozenset[str]]
"""Where the replicas of each partition are, as far as brokers tell."""

NO_GENERATION = -1
NO_RACKS: Racks = {}


class Applicant(NamedTuple):
    """A member, as its subscription tells of it."""

    member_id: str
    group_instance_id: str | None
    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = NO_GENERATION
    user_data: bytes | None = None
    rack: str | None = None

    @property
    def order(self) -> tuple[bool, str]:
        """Static members first, by the name that outlives a restart."""
        if self.group_instance_id is None:
            return True, self.member_id
        return False, self.group_instance_id


class Assignor:
    """One object per member, which may remember what that member was assigned."""

    name: str
    cooperative = False
    """Whether members keep what they have while they rejoin (KIP-429)."""

    def assign(
        self, partition_counts: Mapping[str, int], applicants: Sequence[Applicant], racks: Racks = NO_RACKS
    ) -> Shares:
        """The shares of all; topics that do not exist are missing from `partition_counts`."""
        raise NotImplementedError

    def user_data(self) -> bytes | None:
        """What this member tells the leader beside its topics."""
        return None

    def assigned(self, partitions: Iterable[TopicPartition], generation: int) -> None:
        """This member got its share."""


def subscribers(partition_counts: Mapping[str, int], applicants: Iterable[Applicant]) -> dict[str, list[Applicant]]:
    """Who reads each topic that exists, topics and readers in order."""
    found: dict[str, list[Applicant]] = {}
    for applicant in sorted(applicants, key=lambda each: each.order):
        for topic in applicant.topics & partition_counts.keys():
            found.setdefault(topic, []).append(applicant)
    return dict(sorted(found.items()))
