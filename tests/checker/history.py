"""What happened in a run: the events that the checker judges, and a digest of everything, down to single packets.

The order of the events is that in which the harness saw them: what is asked for is written down *before* it is asked,
what is told *after* it was heard. So an event that stands before another one has certainly happened before it.

Two runs of one seed must have the same digest; where they do not, something in them did not come from the seed.

A partition has one *life* after the other: one ends where its broker, or its cluster, may lose what it has promised.
For a broker that is alone that is a power cut, for a cluster the unclean election of a leader. A harness in which
neither happens says 0.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

Record = tuple[int, bytes]
"""An offset and a value. No two sends have the same value, so that it says where it comes from."""
UNTOLD = -1
"""An offset that a client has not told."""
NO_OFFSET = -1
"""A group has committed nothing for a partition."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Outcome(Enum):
    """How a transaction ended, as far as its producer knows."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


Offsets = tuple[tuple[TopicPartition, int], ...]
"""An offset for each of some partitions: that of the next record to be read."""


# producers


@dataclass(frozen=True, slots=True)
class Sent:
    """A producer is about to send these values for the first time."""

    producer: str
    partition: TopicPartition
    values: tuple[bytes, ...]
    transaction: str = ""
    """No two transactions of a run have the same name; none at all for what is sent outside of one."""
    sources: tuple[bytes, ...] = ()
    """The values from which these were made, one for each, where every source may be counted only once."""


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
class Failed:
    """A producer has given up. Unless that is definite, because no request with them can ever have been carried out,
    the values may be in the log, or come to be."""

    producer: str
    partition: TopicPartition
    values: tuple[bytes, ...]
    definite: bool


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
class TransactionBegun:
    producer: str
    transaction: str


@dataclass(frozen=True, slots=True)
class TransactionEnding:
    """A producer is about to ask for the end of its transaction, for the first time."""

    producer: str
    transaction: str
    wanted: Outcome


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """What a producer knows of the end of its transaction; without this event nothing is known of it."""

    producer: str
    transaction: str
    outcome: Outcome


# consumers


@dataclass(frozen=True, slots=True)
class Assigned:
    """A consumer has got partitions besides those it has, or goes on elsewhere in one that it has (a seek)."""

    consumer: str
    positions: Offsets
    """UNTOLD where the client itself finds its position: what its group has committed, or else the beginning."""
    group: str = ""
    """Who assigned them; none if the consumer itself has."""


@dataclass(frozen=True, slots=True)
class Revoked:
    """A consumer has lost these partitions, whether it was asked or not."""

    consumer: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Polled:
    """A broker let a consumer, who had asked in the given life, read these records."""

    consumer: str
    life: int
    partition: TopicPartition
    fetch_offset: int
    """UNTOLD where the client keeps its position: after what it polled last, or where it was assigned."""
    records: tuple[Record, ...]
    from_any_replica: bool = False
    read_committed: bool = False
    transaction: str = ""
    """The transaction whose sends depend on these records."""


@dataclass(frozen=True, slots=True)
class Committing:
    """A consumer is about to commit offsets; with a transaction they count when that is committed."""

    consumer: str
    group: str
    offsets: Offsets
    transaction: str = ""


@dataclass(frozen=True, slots=True)
class Committed:
    """The last commit of these offsets by this consumer was acknowledged; not written for those in a transaction."""

    consumer: str
    group: str
    offsets: Offsets


@dataclass(frozen=True, slots=True)
class CommitFailed:
    """The last commit of these offsets failed. Unless that is definite, because none of its requests can ever have been
    carried out, it may have been, or come to be."""

    consumer: str
    group: str
    offsets: Offsets
    definite: bool


@dataclass(frozen=True, slots=True)
class CommitsAsked:
    """Somebody is about to ask what a group has committed."""

    asker: str
    group: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class CommitsTold:
    """The answer to the last question of this asker; NO_OFFSET where nothing is committed."""

    asker: str
    group: str
    offsets: Offsets


@dataclass(frozen=True, slots=True)
class Drained:
    """After the last send these consumers, together, have had time enough to read everything in these partitions."""

    consumers: tuple[str, ...]
    partitions: tuple[TopicPartition, ...]


# the log


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
class FinalLog:
    """The whole of a partition at the end of the run."""

    partition: TopicPartition
    log_start_offset: int
    records: tuple[Record, ...]
    read_committed: bool = False


@dataclass(frozen=True, slots=True)
class SentAgain:
    """By its batches, a log has the records at these offsets from a producer that had sent them under another epoch
    before; a broker could not know."""

    partition: TopicPartition
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FinalReplica:
    """What a broker has of a partition at the end of the run: its batches, by base offset."""

    partition: TopicPartition
    broker_id: int
    batches: tuple[tuple[int, bytes], ...]


# faults


@dataclass(frozen=True, slots=True)
class Fault:
    """Something was done to the cluster, or undone: what, to whom, and how."""

    kind: str
    target: str = ""
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


Event = (
    Sent
    | Acknowledged
    | Failed
    | ProducerIdGiven
    | SequenceForgotten
    | TransactionBegun
    | TransactionEnding
    | TransactionEnded
    | Assigned
    | Revoked
    | Polled
    | Committing
    | Committed
    | CommitFailed
    | CommitsAsked
    | CommitsTold
    | Drained
    | Trimming
    | Trimmed
    | Recovered
    | FinalLog
    | SentAgain
    | FinalReplica
    | Fault
    | PowerCut
    | UncleanElection
)


class History:
    """Events with their times. Threads may share it."""

    def __init__(self, time: Callable[[], float]) -> None:
        self.events: list[tuple[float, Event]] = []
        self._time = time
        self._traces = hashlib.sha256()
        self._lock = threading.Lock()

    def record(self, event: Event) -> None:
        with self._lock:
            self.events.append((self._time(), event))

    def trace(self, *what: object) -> None:
        """Let something count for the digest that the checker need not see."""
        self._traces.update(f"{self._time()!r} {len(self.events)} {what!r}\n".encode())

    @property
    def digest(self) -> str:
        digest = self._traces.copy()
        for time, event in self.events:
            digest.update(f"{time!r} {event!r}\n".encode())
        return digest.hexdigest()

    def __str__(self) -> str:
        return "\n".join(f"{time:10.6f} {shortened(event)}" for time, event in self.events)


def shortened(event: Event) -> str:
    """Values begin with what identifies them; the rest is padding."""
    text = repr(event)
    return text if len(text) <= 300 else f"{text[:200]} ... {text[-90:]}"
