"""What a history says, read once and laid out for the rules: sends, transactions, reads, and one log after another.

An offset of a log has one value, for ever. A power cut may take back what a broker that is alone has not synced, so for
a topic that is not synced before it is acknowledged it begins another log; a crash excuses nothing. In a cluster only
an unclean election does. What somebody who had asked before is told afterwards counts for neither of the two.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from tests.checker.anomaly import Moment, narrowed
from tests.checker.expectations import Expectations
from tests.checker.history import (
    UNTOLD,
    Acknowledged,
    Assigned,
    Event,
    Failed,
    FinalLog,
    Outcome,
    Polled,
    PowerCut,
    Record,
    Revoked,
    Sent,
    SentAgain,
    SequenceForgotten,
    TopicPartition,
    TransactionBegun,
    TransactionEnded,
    TransactionEnding,
    Trimming,
    UncleanElection,
)

E = TypeVar("E", bound=Event)


class Send(NamedTuple):
    at: int
    number: int
    """Its place among all values that were sent."""
    event: Sent


class Sighting(NamedTuple):
    """Somebody was told of a value at an offset; `at` is the first event that says so."""

    value: bytes
    at: int


@dataclass(slots=True)
class Transaction:
    commit_asked: int | None = None
    """The event before which nobody may read it."""
    ends: list[int] = field(default_factory=list)
    """The events that tell of its outcome."""
    outcome: Outcome = Outcome.UNKNOWN
    first_seen: int | None = None
    """The first read that shows one of its values though it shows only what is committed."""

    def ask_commit(self, index: int) -> None:
        if self.commit_asked is None:
            self.commit_asked = index

    @property
    def is_committed(self) -> bool:
        """Known to be, be it only because somebody has seen it."""
        return self.outcome is Outcome.COMMITTED or (self.outcome is Outcome.UNKNOWN and self.first_seen is not None)


@dataclass
class Log:
    """All that clients have learnt about a partition, from where it may have lost something to where it may again."""

    partition: TopicPartition
    sightings: dict[int, Sighting] = field(default_factory=dict)
    conflicts: list[tuple[int, Sighting]] = field(default_factory=list)
    """Those that contradict earlier ones."""
    untold: dict[bytes, int] = field(default_factory=dict)
    """Values acknowledged without an offset, and by which event."""
    finals: list[int] = field(default_factory=list)

    @cached_property
    def offsets(self) -> list[int]:
        """In their order; to be asked for when all is learnt."""
        return sorted(self.sightings)

    def between(self, first: int, end: int) -> Iterator[tuple[int, Sighting]]:
        for place in range(bisect_left(self.offsets, first), bisect_left(self.offsets, end)):
            yield self.offsets[place], self.sightings[self.offsets[place]]


@dataclass(frozen=True, slots=True)
class Position:
    """Where a consumer goes on, and which event says so."""

    offset: int
    """UNTOLD if it is for its group to know."""
    at: int
    group: str = ""
    log: Log | None = None
    """The log in which this was so."""


class Read(NamedTuple):
    """What a consumer got to see, or everybody at the end."""

    at: int
    consumer: str
    partition: TopicPartition
    records: tuple[Record, ...]
    read_committed: bool
    log: Log | None
    """None if it was asked for in an earlier log than it was answered in, or a follower may not know of the new one."""
    start: Position | None
    """Where it should begin, if that is known."""
    trim_bound: int
    """Below this offset records may have been deleted by then."""


class Facts:
    def __init__(self, events: Sequence[tuple[float, Event]], expectations: Expectations) -> None:
        self.events = events
        self.expectations = expectations
        self.sends: dict[bytes, Send] = {}
        self.definite_failures: dict[bytes, int] = {}
        self.transactions: dict[str, Transaction] = {}
        self.transactional_partitions: set[TopicPartition] = set()
        self.reads: list[Read] = []
        self.phantoms: list[tuple[TopicPartition, int, Sighting]] = []
        self.trim_bounds: dict[TopicPartition, int] = {}
        self.disordered: set[tuple[str, TopicPartition]] = set()
        """A leader that knows nothing of a producer takes its sequences as they come, perhaps a later batch first."""
        self.sent_again: dict[TopicPartition, set[int]] = {}
        """The offsets of records that their producers have sent anew; no broker could know."""
        self._logs: dict[TopicPartition, list[Log]] = {}
        self._machine_life = 0
        self._lives: dict[TopicPartition, int] = {}
        self._positions: dict[tuple[str, TopicPartition], Position] = {}
        self._indexes: dict[type[object], list[int]] = {}
        readers = self._readers()
        for index, (_, event) in enumerate(events):
            kind = type(event)
            self._indexes.setdefault(kind, []).append(index)
            if kind in readers:
                readers[kind](index, event)

    # for the rules

    def logs(self) -> Iterator[Log]:
        for logs in self._logs.values():
            yield from logs

    def last_log(self, partition: TopicPartition) -> Log:
        if partition not in self._logs:
            self._logs[partition] = [Log(partition)]
        return self._logs[partition][-1]

    def is_last(self, log: Log) -> bool:
        return self.last_log(log.partition) is log

    def of(self, *kinds: type[E]) -> Iterator[tuple[int, E]]:
        """The events of these kinds, in their order."""
        for index in sorted(index for kind in kinds for index in self._indexes.get(kind, ())):
            event = self.events[index][1]
            assert isinstance(event, kinds)
            yield index, event

    def sent(self, value: bytes) -> Sent:
        return self.sends[value].event

    def transaction_of(self, value: bytes) -> Transaction | None:
        """The one in which it was sent, if it was in one."""
        name = self.sent(value).transaction
        return self.transactions[name] if name else None

    def is_visible(self, value: bytes) -> bool:
        """Whether everybody may see it."""
        transaction = self.transaction_of(value)
        return transaction is None or transaction.is_committed

    def is_ordered(self, sent: Sent) -> bool:
        """Whether what its producer sends is there once and in its order."""
        if (sent.producer, sent.partition) in self.disordered:
            return False
        return bool(sent.transaction) or sent.producer in self.expectations.idempotent_producers

    def is_sent_again(self, partition: TopicPartition, offset: int) -> bool:
        return offset in self.sent_again.get(partition, ())

    @cached_property
    def sent_again_values(self) -> Counter[bytes]:
        """How often each was sent anew; to be asked for when all is learnt."""
        return Counter(
            self.last_log(partition).sightings[offset].value
            for partition, offsets in self.sent_again.items()
            for offset in offsets
        )

    def moment(self, index: int, *values: bytes) -> Moment:
        time, event = self.events[index]
        return Moment(index, time, narrowed(event, values) if values else event)

    def evidence(self, indexes: Iterable[int], *values: bytes) -> tuple[Moment, ...]:
        """These events in their order, as far as they tell of these values."""
        return tuple(self.moment(index, *values) for index in sorted(set(indexes)))

    def origin(self, *values: bytes) -> Iterator[int]:
        """The events that tell how these were sent, and that their transactions are committed, if they are."""
        for value in values:
            yield self.sends[value].at
            transaction = self.transaction_of(value)
            if transaction is not None and transaction.is_committed:
                proof = transaction.ends[0] if transaction.ends else transaction.first_seen
                assert proof is not None
                yield proof

    # reading

    def _readers(self) -> dict[type[Event], Callable[[int, Any], None]]:
        """Who reads which events; the others are for the rules themselves."""
        return {
            Sent: self._take_sent,
            Acknowledged: self._take_acknowledged,
            Failed: self._take_failed,
            SequenceForgotten: self._take_forgotten,
            TransactionBegun: self._take_begun,
            TransactionEnding: self._take_ending,
            TransactionEnded: self._take_ended,
            Assigned: self._take_assigned,
            Revoked: self._take_revoked,
            Polled: self._take_polled,
            FinalLog: self._take_final,
            SentAgain: self._take_sent_again,
            Trimming: self._take_trimming,
            PowerCut: self._take_power_cut,
            UncleanElection: self._take_election,
        }

    def _take_sent(self, index: int, event: Sent) -> None:
        for value in event.values:
            if value in self.sends:
                raise ValueError(f"event {index} sends {value!r} a second time: values must be unique")
            self.sends[value] = Send(index, len(self.sends), event)
        if event.transaction:
            self._transaction(event.transaction)
            self.transactional_partitions.add(event.partition)

    def _take_acknowledged(self, index: int, event: Acknowledged) -> None:
        log = self._log_of(event.partition, event.life)
        if log is None or event.producer in self.expectations.hasty_producers:
            return
        if event.base_offset == UNTOLD:
            log.untold.update(dict.fromkeys(event.values, index))
        else:
            self._learn(log, index, enumerate(event.values, event.base_offset))

    def _take_failed(self, index: int, event: Failed) -> None:
        if event.definite:
            self.definite_failures.update(dict.fromkeys(event.values, index))

    def _take_forgotten(self, _: int, event: SequenceForgotten) -> None:
        if event.partition in self._lives:
            self.disordered.add((event.producer, event.partition))

    def _take_begun(self, _: int, event: TransactionBegun) -> None:
        self._transaction(event.transaction)

    def _take_ending(self, index: int, event: TransactionEnding) -> None:
        if event.wanted is Outcome.COMMITTED:
            self._transaction(event.transaction).ask_commit(index)

    def _take_ended(self, index: int, event: TransactionEnded) -> None:
        transaction = self._transaction(event.transaction)
        if event.outcome is Outcome.COMMITTED:
            transaction.ask_commit(index)
        if event.outcome is not Outcome.UNKNOWN:
            transaction.outcome = event.outcome
            transaction.ends.append(index)

    def _take_assigned(self, index: int, event: Assigned) -> None:
        for partition, offset in event.positions:
            self._place(event.consumer, partition, Position(offset, index, event.group))

    def _take_revoked(self, _: int, event: Revoked) -> None:
        for partition in event.partitions:
            self._positions.pop((event.consumer, partition), None)

    def _take_polled(self, index: int, event: Polled) -> None:
        if not event.records:
            return
        # After an unclean election a follower gives out what it has until it hears of its leader's log.
        log = self._log_of(event.partition, event.life)
        if event.from_any_replica and event.partition in self._lives:
            log = None
        start: Position | None = Position(event.fetch_offset, index)
        if event.fetch_offset == UNTOLD:
            start = self._positions.get((event.consumer, event.partition))
            if start is not None and start.log is not self.last_log(event.partition):
                start = None
        if log is None:
            self._positions.pop((event.consumer, event.partition), None)
        else:
            self._place(event.consumer, event.partition, Position(event.records[-1][0] + 1, index))
        self._read(index, event.consumer, event, log, start)

    def _take_final(self, index: int, event: FinalLog) -> None:
        log = self.last_log(event.partition)
        log.finals.append(index)
        self._read(index, "", event, log, None)

    def _take_sent_again(self, _: int, event: SentAgain) -> None:
        self.sent_again.setdefault(event.partition, set()).update(event.offsets)

    def _take_trimming(self, _: int, event: Trimming) -> None:
        self.trim_bounds[event.partition] = max(event.offset, self.trim_bounds.get(event.partition, 0))

    def _take_power_cut(self, _: int, event: PowerCut) -> None:
        self._machine_life = event.life
        for partition, logs in self._logs.items():
            if partition.topic not in self.expectations.synced_topics:
                logs.append(Log(partition))

    def _take_election(self, _: int, event: UncleanElection) -> None:
        self._lives[event.partition] = event.life
        self._logs.setdefault(event.partition, []).append(Log(event.partition))

    def _read(
        self, index: int, consumer: str, event: Polled | FinalLog, log: Log | None, start: Position | None
    ) -> None:
        bound = self.trim_bounds.get(event.partition, 0)
        self.reads.append(
            Read(index, consumer, event.partition, event.records, event.read_committed, log, start, bound)
        )
        if log is not None:
            self._learn(log, index, event.records)
        if event.read_committed:
            for _, value in event.records:
                transaction = self.transaction_of(value) if value in self.sends else None
                if transaction is not None and transaction.first_seen is None:
                    transaction.first_seen = index

    def _log_of(self, partition: TopicPartition, life: int) -> Log | None:
        """The log of which somebody learns who had asked in the given life; none if that is over."""
        is_over = life < self._lives.get(partition, self._machine_life)
        return None if is_over and partition.topic not in self.expectations.synced_topics else self.last_log(partition)

    def _learn(self, log: Log, index: int, records: Iterable[Record]) -> None:
        for offset, value in records:
            if value not in self.sends or self.sent(value).partition != log.partition:
                self.phantoms.append((log.partition, offset, Sighting(value, index)))
                continue
            if offset not in log.sightings:
                log.sightings[offset] = Sighting(value, index)
            elif log.sightings[offset].value != value:
                log.conflicts.append((offset, Sighting(value, index)))

    def _place(self, consumer: str, partition: TopicPartition, position: Position) -> None:
        self._positions[consumer, partition] = replace(position, log=self.last_log(partition))

    def _transaction(self, name: str) -> Transaction:
        return self.transactions.setdefault(name, Transaction())
