"""Small values that consumers, groups and transactions hand to each other."""

from __future__ import annotations

from typing import NamedTuple


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
