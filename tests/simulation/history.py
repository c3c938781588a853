"""What happened in a run: the events that the checker judges, and a digest of everything, down to single packets.

Two runs of one seed must have the same digest; where they do not, something in them did not come from the seed.

A partition has one *life* after the other: one ends where its broker, or its cluster, may lose what it has promised.
For a broker that is alone that is a power cut, for a cluster the unclean election of a leader.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

Record = tuple[int, bytes]
"""An offset and a value. No two sends have the same value, so that it says where it comes from."""
UNTOLD = -1


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Sent:
    """A producer is about to send these values for the first time."""

    producer: str
    partition: TopicPartition
    values: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A broker told a producer, who had asked in the given life, at which offset its values are."""

    producer: str
    life: int
    partition: TopicPartition
    base_offset: int
    """UNTOLD if the producer only knows that they are there, because later ones are."""
    values: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class ProducerIdGiven:
    producer: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class SequenceForgotten:
    """The broker did not know what an idempotent producer had sent before, as it may in the partition's next life."""

    producer: str
    life: int
    partition: TopicPartition
    since_life: int
    """The life in which the producer began to count."""


@dataclass(frozen=True, slots=True)
class Polled:
    """A broker let a consumer, who had asked in the given life, read these records."""

    consumer: str
    life: int
    partition: TopicPartition
    fetch_offset: int
    records: tuple[Record, ...]
    from_any_replica: bool = False


@dataclass(frozen=True, slots=True)
class Trimming:
    """The records below an offset are to be deleted; whether they will be is not known."""

    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The broker told that the log begins here now."""

    partition: TopicPartition
    low_watermark: int


@dataclass(frozen=True, slots=True)
class Recovered:
    """A broker has opened a log: its bytes before the restart and after, and whether it only lost some at an end."""

    partition: TopicPartition
    bytes_before: int
    bytes_after: int
    is_prefix: bool


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PowerCut:
    """The machine of a broker that is alone has lost power: the next life of all its partitions begins."""

    life: int


@dataclass(frozen=True, slots=True)
class UncleanElection:
    """A replica leads that may lack something: the partition's next life begins."""

    partition: TopicPartition
    life: int


@dataclass(frozen=True, slots=True)
class FinalLog:
    """The whole of a partition at the end of the run."""

    partition: TopicPartition
    log_start_offset: int
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class FinalReplica:
    """What a broker has of a partition at the end of the run: its batches, by base offset."""

    partition: TopicPartition
    broker_id: int
    batches: tuple[tuple[int, bytes], ...]


Event = (
    Sent
    | Acknowledged
    | ProducerIdGiven
    | SequenceForgotten
    | Polled
    | Trimming
    | Trimmed
    | Recovered
    | Fault
    | PowerCut
    | UncleanElection
    | FinalLog
    | FinalReplica
)


class History:
    def __init__(self, time: Callable[[], float]) -> None:
        self.events: list[tuple[float, Event]] = []
        self._time = time
        self._digest = hashlib.sha256()

    def record(self, event: Event) -> None:
        self.events.append((self._time(), event))
        self.trace(event)

    def trace(self, *what: object) -> None:
        """Let something count for the digest that the checker need not see."""
        self._digest.update(f"{self._time()!r} {what!r}\n".encode())

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def __str__(self) -> str:
        return "\n".join(f"{time:10.6f} {_shortened(event)}" for time, event in self.events)


def _shortened(event: Event) -> str:
    """Values begin with what identifies them; the rest is padding."""
    text = repr(event)
    return text if len(text) <= 300 else f"{text[:200]} ... {text[-90:]}"
