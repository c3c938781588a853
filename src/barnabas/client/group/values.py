"""Small values that consumers, groups and transactions hand to each other."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.client.metadata import TopicPartition
from barnabas.core.dataclass import dataclass


class OffsetAndMetadata(NamedTuple):
    """A committed position: the offset of the next record to read, and a note of the caller's."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class GroupMetadata(NamedTuple):
    """Who commits: a transaction's offsets are refused from a member that its group has left behind."""

    group_id: str
    member_id: str = ""
    generation: int = -1
    """Of the classic protocol the generation, of KIP-848's the member epoch."""
    group_instance_id: str | None = None


class Subscription(NamedTuple):
    """What a member wants to read: these topics, or those whose whole name matches a pattern."""

    topics: frozenset[str] = frozenset()
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """What a member has to do to its partitions, in this order."""

    revoked: tuple[TopicPartition, ...] = ()
    """Still the member's own: it commits, then gives them up."""
    assigned: tuple[TopicPartition, ...] = ()
    lost: tuple[TopicPartition, ...] = ()
    """No longer the member's own, maybe somebody else's already: there is nothing to commit."""
