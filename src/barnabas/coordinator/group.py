"""What a shard asks of a group, whichever protocol its members speak: may offsets be touched, and what is it like.

A `validate_` method raises KafkaError with the code that the protocol has for a refusal, and otherwise does nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple, Protocol

from barnabas.coordinator.outcome import CoordinatorRecord


class GroupType(Enum):
    """As ListGroups names it; filters may spell it in capitals."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class CommittedPartition(NamedTuple):
    topic: str
    topic_id: bytes
    partition: int


class Group(Protocol):
    @property
    def group_id(self) -> str: ...

    @property
    def group_type(self) -> GroupType: ...

    @property
    def state_name(self) -> str:
        """`Empty`, `Stable`, ... as the listings show it."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """`consumer` and the like; None for a group that only ever committed offsets."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, and may go once it has no offsets either."""
        ...

    def is_subscribed_to(self, topic: str) -> bool: ...

    def retention_start_ms(self, commit_timestamp_ms: int) -> int | None:
        """From when on the retention of an offset counts that was committed then; None while none may expire."""
        ...

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id_or_member_epoch: int,
        *,
        is_transactional: bool,
        api_version: int,
        partitions: Iterable[CommittedPartition],
    ) -> None: ...

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None: ...

    def validate_offset_delete(self) -> None: ...

    def validate_delete(self) -> None: ...

    def tombstones(self) -> list[CoordinatorRecord]:
        """The records that remove it, offsets aside."""
        ...
