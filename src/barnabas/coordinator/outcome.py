"""What a coordinator's state machine is told, and what it answers.

A *shard* holds the state of everything that one partition of an internal topic stands for. Its state is the fold of
that partition's records. An operation changes the state at once and returns an `Outcome`: the records that make the
change last, to be appended as one batch, and the replies, which may leave once the watermark has passed those records.
A request comes with a *token* of its driver's choice; an outcome that does not answer a token keeps it waiting, and a
later one answers it (JoinGroup waits for the other members). If the records cannot be appended, or leadership is lost,
the driver throws the shard away, tells everybody who waits, and loads it anew: nothing that was not committed was ever
told.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import field
from typing import Any, NamedTuple, TypeAlias

from barnabas.core.dataclass import dataclass

Token: TypeAlias = Hashable
"""A request that is owed a reply."""


class Now(NamedTuple):
    """The time of an event: one clock for time-outs, which never steps, and one for what is written into records."""

    monotonic_ms: int
    wall_ms: int


class CoordinatorRecord(NamedTuple):
    """A record of an internal topic; without a value it is a tombstone."""

    key: bytes
    value: bytes | None


@dataclass(slots=True)
class Outcome:
    """Records to append, all or none, and the replies that stand on them."""

    records: list[CoordinatorRecord] = field(default_factory=list)
    replies: list[tuple[Token, Any]] = field(default_factory=list)

    def reply(self, token: Token, response: Any) -> Outcome:
        self.replies.append((token, response))
        return self

    def join(self, other: Outcome) -> Outcome:
        """Both outcomes as one, this one first."""
        self.records += other.records
        self.replies += other.replies
        return self
