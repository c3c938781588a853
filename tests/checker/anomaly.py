"""An anomaly has a name, and the smallest piece of the history that shows it.

The names are those of Jepsen's Kafka workload, with some of our own for what only a harness that sees the brokers from
inside can find. `internal` is within one poll or one transaction, `external` is between two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

from tests.checker.history import UNTOLD, Acknowledged, Event, Failed, FinalLog, Polled, Sent, shortened


class Name(Enum):
    """What can be wrong."""

    LOST_WRITE = "lost write"
    DUPLICATE = "duplicate"
    UNSEEN = "unseen"
    INCONSISTENT_OFFSETS = "inconsistent offsets"
    ABORTED_READ = "aborted read"
    PRECOMMITTED_READ = "precommitted read"
    INTERNAL_POLL_SKIP = "poll skip (internal)"
    EXTERNAL_POLL_SKIP = "poll skip (external)"
    INTERNAL_NONMONOTONIC_POLL = "non-monotonic poll (internal)"
    EXTERNAL_NONMONOTONIC_POLL = "non-monotonic poll (external)"
    INTERNAL_NONMONOTONIC_SEND = "non-monotonic send (internal)"
    EXTERNAL_NONMONOTONIC_SEND = "non-monotonic send (external)"
    WRITE_CYCLE = "G0"
    INFORMATION_CYCLE = "G1c"
    # and what Jepsen has no name for
    PHANTOM = "phantom"
    GAP = "gap"
    DOUBLE_PROCESSING = "double processing"
    UNPROCESSED = "unprocessed"
    LOST_COMMIT = "lost commit"
    BACKWARD_COMMIT = "backward commit"
    TWO_OUTCOMES = "two outcomes"
    UNASKED_TRIM = "unasked trim"
    UNDONE_TRIM = "undone trim"
    DIVERGED_REPLICAS = "diverged replicas"
    BROKEN_RECOVERY = "broken recovery"
    UNCLEAN_ELECTION = "unclean election"
    SHARED_PRODUCER_ID = "shared producer id"
    FORGOTTEN_SEQUENCE = "forgotten sequence"


class Moment(NamedTuple):
    """An event of the history, cut down to what matters."""

    at: int
    time: float
    event: Event

    def __str__(self) -> str:
        return f"{self.time:10.6f} #{self.at} {shortened(self.event)}"


@dataclass(frozen=True, slots=True)
class Anomaly:
    name: Name
    where: str
    what: str
    evidence: tuple[Moment, ...]
    others: int = 0
    """How many more of its name there are in the same place."""

    def __str__(self) -> str:
        more = f" (and {self.others} more)" if self.others else ""
        return "\n    ".join([f"{self.name.value}: {self.where}: {self.what}{more}", *map(str, self.evidence)])


def short(value: bytes) -> str:
    """A value begins with what identifies it."""
    return value[:40].decode(errors="replace").partition(" ")[0]


def narrowed(event: Event, values: Collection[bytes]) -> Event:
    """The event as far as it tells of these values; all of it if it tells of none."""
    narrow = _NARROW.get(type(event))
    return narrow(event, values) if narrow else event


def _narrowed_sent(event: Sent, values: Collection[bytes]) -> Sent:
    kept = [index for index, value in enumerate(event.values) if value in values]
    if not kept:
        return event
    sources = tuple(event.sources[index] for index in kept) if event.sources else ()
    return replace(event, values=tuple(event.values[index] for index in kept), sources=sources)


def _narrowed_acknowledged(event: Acknowledged, values: Collection[bytes]) -> Acknowledged:
    kept = [index for index, value in enumerate(event.values) if value in values]
    if not kept:
        return event
    first, last = kept[0], kept[-1]
    base_offset = event.base_offset if event.base_offset == UNTOLD else event.base_offset + first
    return replace(event, base_offset=base_offset, values=event.values[first : last + 1])


def _narrowed_failed(event: Failed, values: Collection[bytes]) -> Failed:
    return replace(event, values=tuple(value for value in event.values if value in values) or event.values)


def _narrowed_polled(event: Polled, values: Collection[bytes]) -> Polled:
    kept = tuple(record for record in event.records if record[1] in values)
    if not kept:
        return event
    begins_later = event.fetch_offset != UNTOLD and kept[0] != event.records[0]
    return replace(event, records=kept, fetch_offset=kept[0][0] if begins_later else event.fetch_offset)


def _narrowed_final(event: FinalLog, values: Collection[bytes]) -> FinalLog:
    return replace(event, records=tuple(record for record in event.records if record[1] in values))


_NARROW: dict[type[Event], Callable[[Any, Collection[bytes]], Event]] = {
    Sent: _narrowed_sent,
    Acknowledged: _narrowed_acknowledged,
    Failed: _narrowed_failed,
    Polled: _narrowed_polled,
    FinalLog: _narrowed_final,
}
