"""A cluster that keeps every promise, with clients whose steps mingle by chance: its histories have no anomaly.

Every client is a generator that lets the others go on wherever an answer may be late, or may never come.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator

from tests.checker.history import (
    NO_OFFSET,
    UNTOLD,
    Acknowledged,
    Assigned,
    CommitFailed,
    CommitsAsked,
    CommitsTold,
    Committed,
    Committing,
    Drained,
    Event,
    Failed,
    FinalLog,
    Outcome,
    Polled,
    Record,
    Revoked,
    Sent,
    TopicPartition,
    TransactionBegun,
    TransactionEnded,
    TransactionEnding,
)

INPUTS = [TopicPartition("input", index) for index in range(2)]
OUTPUT = TopicPartition("output", 0)
GROUP, COPIERS = "group", "copiers"
MEMBERS, READER = ("m0", "m1"), "reader"
ROUNDS = 12

Steps = Generator[None, None, None]


class Log:
    """Records and markers; a reader sees them up to the first one whose transaction is open."""

    def __init__(self) -> None:
        self.entries: list[tuple[bytes | None, str]] = []

    def append(self, value: bytes | None, transaction: str = "") -> int:
        self.entries.append((value, transaction))
        return len(self.entries) - 1

    def read(self, start: int, limit: int, outcomes: dict[str, Outcome]) -> tuple[Record, ...]:
        found: list[Record] = []
        for offset, (value, transaction) in enumerate(self.entries[start:], start):
            if (transaction and transaction not in outcomes) or len(found) == limit:
                break
            if value is not None and outcomes.get(transaction) is not Outcome.ABORTED:
                found.append((offset, value))
        return tuple(found)


class Model:
    def __init__(self, seed: int) -> None:
        self.events: list[Event] = []
        self._rng = random.Random(seed)
        self._logs = {partition: Log() for partition in (*INPUTS, OUTPUT)}
        self._outcomes: dict[str, Outcome] = {}
        self._commits: dict[tuple[str, TopicPartition], int] = {}
        self._owners: dict[TopicPartition, str] = {}
        self._count = 0
        self._stages_over = 0
        self._run()
        self._end()

    def _run(self) -> None:
        """Those who write to the inputs come to their end first, then those who copy, then all others."""
        writers = [self._idempotent("p0"), self._idempotent("p1"), self._transactional("t0"), self._transactional("t1")]
        copier = self._copier()
        running = [*writers, copier, self._reader(), *map(self._member, MEMBERS), self._asker()]
        for stage in (writers, [copier], list(running)):
            while any(client in running for client in stage):
                client = self._rng.choice(running)
                if next(client, running) is running:
                    running.remove(client)
            self._stages_over += 1

    def _end(self) -> None:
        self.events.append(Drained((READER,), tuple(self._logs)))
        self.events.append(Drained(MEMBERS, tuple(INPUTS)))
        for partition, log in self._logs.items():
            committed = log.read(0, len(log.entries), self._outcomes)
            everything = tuple((offset, value) for offset, (value, _) in enumerate(log.entries) if value is not None)
            self.events.append(FinalLog(partition, 0, committed, read_committed=True))
            self.events.append(FinalLog(partition, 0, everything))

    def _chance(self, probability: float) -> bool:
        return self._rng.random() < probability

    def _new_value(self, producer: str) -> bytes:
        self._count += 1
        return f"{producer}:{self._count}".encode()

    # producers

    def _idempotent(self, name: str) -> Steps:
        for _ in range(ROUNDS):
            partition = self._rng.choice(INPUTS)
            value = self._new_value(name)
            self.events.append(Sent(name, partition, (value,)))
            yield
            if self._chance(0.1):
                self.events.append(Failed(name, partition, (value,), definite=True))
                continue
            offset = self._logs[partition].append(value)
            yield
            told = self._rng.choice(["offset", "offset", "offset", "success", "failure", "nothing"])
            if told == "failure":
                self.events.append(Failed(name, partition, (value,), definite=False))
            elif told != "nothing":
                base_offset = offset if told == "offset" else UNTOLD
                self.events.append(Acknowledged(name, 0, partition, base_offset, (value,)))

    def _transactional(self, name: str) -> Steps:
        for number in range(ROUNDS // 2):
            transaction = f"{name}/{number}"
            self.events.append(TransactionBegun(name, transaction))
            touched = [self._rng.choice(INPUTS) for _ in range(self._rng.randint(1, 3))]
            for partition in touched:
                yield from self._send(name, transaction, partition)
            yield from self._finish(name, transaction, touched, self._chance(0.7))

    def _send(self, name: str, transaction: str, partition: TopicPartition, source: bytes | None = None) -> Steps:
        value = self._new_value(name)
        self.events.append(Sent(name, partition, (value,), transaction, () if source is None else (source,)))
        yield
        offset = self._logs[partition].append(value, transaction)
        yield
        self.events.append(Acknowledged(name, 0, partition, offset, (value,)))

    def _finish(
        self, name: str, transaction: str, touched: list[TopicPartition], is_to_commit: bool
    ) -> Generator[None, None, bool]:
        """End it, unless it comes to nothing; whether it was committed."""
        outcome = Outcome.COMMITTED if is_to_commit else Outcome.ABORTED
        self.events.append(TransactionEnding(name, transaction, outcome))
        yield
        if self._chance(0.1):
            outcome, is_told = Outcome.ABORTED, False
        else:
            is_told = self._chance(0.8)
        self._outcomes[transaction] = outcome
        for partition in dict.fromkeys(touched):
            self._logs[partition].append(None, transaction)
        yield
        self.events.append(TransactionEnded(name, transaction, outcome if is_told else Outcome.UNKNOWN))
        return outcome is Outcome.COMMITTED

    # consumers

    def _rounds(self, stages: int = 2) -> Iterator[None]:
        """As long as something may come that is to be read, and long enough to read it all."""
        while self._stages_over < stages:
            yield
        for _ in range(60):
            yield

    def _read(self, partition: TopicPartition, start: int) -> tuple[Record, ...]:
        return self._logs[partition].read(start, self._rng.randint(1, 4), self._outcomes)

    def _reader(self) -> Steps:
        name = READER
        positions = dict.fromkeys(self._logs, 0)
        self.events.append(Assigned(name, tuple(positions.items())))
        for _ in self._rounds():
            for partition, position in positions.items():
                records = self._read(partition, position)
                yield
                if records:
                    self.events.append(Polled(name, 0, partition, UNTOLD, records, read_committed=True))
                    positions[partition] = records[-1][0] + 1

    def _member(self, name: str) -> Steps:
        """Takes partitions from the other, reads and commits, and notices late that it has lost them."""
        positions: dict[TopicPartition, int] = {}
        for _ in self._rounds():
            partition = self._rng.choice(INPUTS)
            if partition not in positions:
                self._owners[partition] = name
                self.events.append(Assigned(name, ((partition, UNTOLD),), GROUP))
                yield
                positions[partition] = self._commits.get((GROUP, partition), 0)
            records = self._read(partition, positions[partition])
            yield
            if records:
                self.events.append(Polled(name, 0, partition, UNTOLD, records, read_committed=True))
                positions[partition] = records[-1][0] + 1
                yield from self._commit(name, partition, positions[partition])
            if self._owners[partition] != name or self._chance(0.2):
                del positions[partition]
                self.events.append(Revoked(name, (partition,)))
            yield

    def _commit(self, name: str, partition: TopicPartition, offset: int) -> Steps:
        offsets = ((partition, offset),)
        self.events.append(Committing(name, GROUP, offsets))
        yield
        is_done = self._owners[partition] == name
        if is_done:
            self._commits[GROUP, partition] = offset
        yield
        if self._chance(0.2):
            self.events.append(CommitFailed(name, GROUP, offsets, definite=False))
        elif is_done:
            self.events.append(Committed(name, GROUP, offsets))
        else:
            self.events.append(CommitFailed(name, GROUP, offsets, definite=True))

    def _copier(self) -> Steps:
        """Reads one input and writes a record for each of its records, exactly once."""
        source = INPUTS[0]
        name = "copier"
        self.events.append(Assigned(name, ((source, UNTOLD),), COPIERS))
        position = 0
        for number, _ in enumerate(self._rounds(stages=1)):
            records = self._read(source, position)
            yield
            if not records:
                continue
            transaction = f"{name}/{number}"
            self.events.append(TransactionBegun(name, transaction))
            self.events.append(Polled(name, 0, source, UNTOLD, records, read_committed=True, transaction=transaction))
            for _, value in records:
                yield from self._send(name, transaction, OUTPUT, value)
            self.events.append(Committing(name, COPIERS, ((source, records[-1][0] + 1),), transaction))
            is_committed = yield from self._finish(name, transaction, [OUTPUT], is_to_commit=True)
            if is_committed:
                position = self._commits[COPIERS, source] = records[-1][0] + 1
            else:
                self.events.append(Assigned(name, ((source, UNTOLD),), COPIERS))
            yield

    def _asker(self) -> Steps:
        for _ in self._rounds():
            partition = self._rng.choice(INPUTS)
            self.events.append(CommitsAsked("asker", GROUP, (partition,)))
            yield
            offset = self._commits.get((GROUP, partition), NO_OFFSET)
            yield
            self.events.append(CommitsTold("asker", GROUP, ((partition, offset),)))
            yield
