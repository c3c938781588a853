"""librdkafka's clients under faults: producers, readers of their own, and members of groups of both protocols.

A client that can do nothing more is replaced by another one under the next name. What producers say of their epochs
and sequences is kept in a file, on the clock of the history.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Position

from tests.chaos.journal import Journal, Landed
from tests.chaos.load import Load
from tests.checker.history import (
    UNTOLD,
    Assigned,
    CommitFailed,
    Committed,
    Committing,
    Failed,
    Outcome,
    Revoked,
    Sent,
    TopicPartition,
    TransactionBegun,
    TransactionEnded,
    TransactionEnding,
)

MOST_UNACKNOWLEDGED = 5000
TRANSACTION_TIMEOUT_MS = 15_000
CALL_S = 5.0
"""How long a call waits before it is made again."""
HUNG_S = 20.0
"""After this time a call that has no time-out counts as one that never returns."""
QUIET_S = 60.0
"""After this time without a record, all in all or of one of its partitions, a consumer is not waited for."""
_SILENT = logging.getLogger("tests.chaos.librdkafka")
_SILENT.disabled = True  # what it calls fatal is what its application is told
_COMMON = {
    "logger": _SILENT,
    "error_cb": lambda _: None,
    "socket.timeout.ms": 5000,
    "reconnect.backoff.max.ms": 1000,
    # By default it forgets all brokers where none can be reached, and its threads may wait for each other for ever
    # (librdkafka 2.16.0, since its change 5600).
    "metadata.recovery.strategy": "none",
}


# producers


class _OnClockOfHistory(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{time.monotonic():10.6f} {record.getMessage()}"


def notes(path: Path) -> logging.Logger:
    """For what librdkafka has to say."""
    logger = logging.getLogger(str(path))
    handler = logging.FileHandler(path)
    handler.setFormatter(_OnClockOfHistory())
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    return logger


class Deliveries:
    """What a producer is told of its records: gathered while it is polled, and written down together."""

    def __init__(self, journal: Journal, name: str) -> None:
        self.failed = 0
        self._journal = journal
        self._name = name
        self._landed: list[Landed] = []

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        partition = TopicPartition(message.topic(), message.partition())
        if error is not None:
            self.failed += 1
            self._journal.setbacks[f"librdkafka: {error.name()}"] += 1
            self._journal.record(Failed(self._name, partition, (message.value(),), definite=False))
        else:
            # Where a request has failed and the next one has not, it knows only that the first was carried out.
            offset = UNTOLD if message.offset() is None else message.offset()
            self._landed.append((partition, offset, message.value()))

    def write_down(self) -> int:
        landed, self._landed = self._landed, []
        self._journal.acknowledge(self._name, landed)
        return len(landed)


def idempotent(journal: Journal, load: Load, bootstrap: str, role: str, logger: logging.Logger) -> None:
    for life in itertools.count(1):
        if not journal.writing.is_set():
            return
        _write(journal, load, bootstrap, role, f"{role}.{life}", logger)


def _write(journal: Journal, load: Load, bootstrap: str, role: str, name: str, logger: logging.Logger) -> None:
    """Until it is over, or nothing more can be sent."""
    fatal: list[KafkaError] = []
    producer = Producer(
        {
            **_COMMON,
            "logger": logger,
            "debug": "eos",
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 5,
            "message.timeout.ms": 300_000,
            "error_cb": lambda error: fatal.append(error) if error.fatal() else None,
        }
    )
    deliveries = Deliveries(journal, name)
    for partition, values in load.bursts(name):
        producer.poll(load.pause_s)
        if deliveries.write_down():
            journal.moved(role)
        if fatal or not journal.writing.is_set():
            break
        if len(producer) > MOST_UNACKNOWLEDGED:
            continue
        journal.record(Sent(name, partition, values))
        for value in values:
            producer.produce(partition.topic, value, load.padding, partition.partition, on_delivery=deliveries)
    for error in fatal[:1]:
        journal.setbacks[f"librdkafka, fatal: {error.name()}"] += 1
    left = producer.flush(0 if fatal else 60)
    deliveries.write_down()
    if left and not fatal:
        journal.fail(f"{name}: {left} records are neither acknowledged nor refused")


def transactional(journal: Journal, load: Load, bootstrap: str, role: str) -> None:
    """Each transaction writes, and then reads what others have written there."""
    numbers = itertools.count(1)
    consumer = _by_hand(bootstrap)
    consumer.assign([Position(*each, offset) for each, offset in journal.begin(role, role, load.ledger)])
    try:
        for life in itertools.count(1):
            if not journal.writing.is_set():
                return
            _transact(journal, load, bootstrap, role, f"{role}.{life}", numbers, consumer)
    finally:
        with suppress(Hung):
            _bounded(consumer.close)


def _transact(
    journal: Journal,
    load: Load,
    bootstrap: str,
    role: str,
    name: str,
    numbers: itertools.count[int],
    consumer: Consumer,
) -> None:
    """Until it is over, or the producer can do nothing more."""
    producer = Producer(
        {
            **_COMMON,
            "bootstrap.servers": bootstrap,
            "transactional.id": role,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "linger.ms": 2,
        }
    )
    deliveries = Deliveries(journal, name)
    transaction = ""
    is_committing = False
    try:
        _repeated(journal, lambda: producer.init_transactions(CALL_S))
        for sends, is_to_commit in load.transactions(name):
            if not journal.writing.is_set():
                return
            transaction, is_committing = f"{role}/{next(numbers)}", False
            journal.record(TransactionBegun(name, transaction))
            producer.begin_transaction()
            outcome = Outcome.ABORTED
            try:
                for partition, values in sends:
                    journal.record(Sent(name, partition, values, transaction))
                    for value in values:
                        producer.produce(
                            partition.topic, value, load.padding, partition.partition, on_delivery=deliveries
                        )
                while producer.flush(CALL_S) and journal.reading.is_set():
                    pass
                deliveries.write_down()
                journal.look(role, role, _polled(journal, role, consumer), transaction)
                is_committing = is_to_commit
                wanted = Outcome.COMMITTED if is_to_commit else Outcome.ABORTED
                journal.record(TransactionEnding(name, transaction, wanted))
                if is_to_commit:
                    _repeated(journal, lambda: producer.commit_transaction(CALL_S))
                    outcome = Outcome.COMMITTED
                else:
                    _repeated(journal, lambda: producer.abort_transaction(CALL_S))
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                journal.setbacks[f"librdkafka, to be aborted: {error.args[0].name()}"] += 1
                _repeated(journal, lambda: producer.abort_transaction(CALL_S))
            journal.record(TransactionEnded(name, transaction, outcome))
            if outcome is Outcome.COMMITTED:
                journal.committed_transactions += 1
                journal.moved(role)
            transaction = ""
            time.sleep(load.rest_s)
    except (KafkaException, SystemError) as raised:
        journal.setbacks[f"librdkafka, fatal: {_cause(raised).args[0].name()}"] += 1
        if transaction:
            outcome = Outcome.UNKNOWN if is_committing else Outcome.ABORTED
            journal.record(TransactionEnded(name, transaction, outcome))
        time.sleep(0.2)
    finally:
        with suppress(KafkaException, SystemError):  # what cannot go on says so once more
            producer.purge()
            producer.flush(1)
        deliveries.write_down()


def _cause(raised: KafkaException | SystemError) -> KafkaException:
    """An error that a call raises while it tells of another is wrapped by confluent-kafka's binding, by mistake."""
    cause = raised.__cause__ if isinstance(raised, SystemError) else raised
    if not isinstance(cause, KafkaException):
        raise raised
    return cause


def _repeated(journal: Journal, call: Callable[[], Any]) -> None:
    """Make a call again while its failure may pass."""
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable() or not journal.reading.is_set():
                raise


# consumers


def reader(journal: Journal, load: Load, bootstrap: str, role: str) -> None:
    """All partitions, by hand, from the beginning."""
    for life in itertools.count(1):
        if not journal.reading.is_set():
            return
        try:
            _read_by_hand(journal, load, bootstrap, f"{role}.{life}", role)
        except Hung:
            journal.setbacks["librdkafka, reader: hangs"] += 1


def _read_by_hand(journal: Journal, load: Load, bootstrap: str, name: str, role: str) -> None:
    """From where the one before it was on; another one takes over from who gets nothing for long."""
    consumer = _by_hand(bootstrap)
    consumer.assign([Position(*each, offset) for each, offset in journal.begin(name, role, load.partitions)])
    served_at = time.monotonic()
    try:
        while journal.reading.is_set() and time.monotonic() - served_at < QUIET_S:
            polled = _polled(journal, name, consumer)
            journal.poll(name, role, polled)
            if polled:
                served_at = time.monotonic()
            time.sleep(load.rest_s)
    finally:
        _bounded(consumer.close)
    if journal.reading.is_set():
        journal.setbacks["librdkafka, reader: gets nothing"] += 1


def member(journal: Journal, load: Load, bootstrap: str, role: str, group: str, protocol: dict[str, Any]) -> None:
    for life in itertools.count(1):
        if not journal.reading.is_set():
            return
        try:
            _belong(journal, load, bootstrap, f"{role}.{life}", group, protocol)
        except KafkaException as error:
            journal.setbacks[f"librdkafka, member: {error.args[0].name()}"] += 1
            time.sleep(0.2)
        except Hung:
            journal.setbacks["librdkafka, member: hangs"] += 1


def _belong(journal: Journal, load: Load, bootstrap: str, name: str, group: str, protocol: dict[str, Any]) -> None:
    """Until it is over. Who gets nothing from a partition leaves: an answer that its coordinator has moved makes
    librdkafka forget to ask where to begin (its issue 5586)."""
    passed: dict[TopicPartition, int] = {}
    """How far the partitions are read that this member has."""
    served_at: dict[TopicPartition, float] = {}
    """When each of them last brought something."""

    def assigned(_: Consumer, partitions: list[Position]) -> None:
        got = tuple((_partition(each), UNTOLD) for each in partitions)
        passed.update(got)
        served_at.update(dict.fromkeys(passed.keys() - served_at, time.monotonic()))
        if got:
            journal.record(Assigned(name, got, group))

    def revoked(_: Consumer, partitions: list[Position]) -> None:
        lost = tuple(map(_partition, partitions))
        for partition in lost:
            passed.pop(partition, None)
            served_at.pop(partition, None)
        if lost:
            journal.record(Revoked(name, lost))

    choices = {
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "max.poll.interval.ms": load.poll_interval_ms,
        **protocol,
    }
    consumer = Consumer({**_consumer(bootstrap), **choices})
    consumer.subscribe(list(load.topics), on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    committed_at = time.monotonic()
    try:
        while journal.reading.is_set():
            polled = _polled(journal, name, consumer)
            journal.poll(name, group, polled)
            passed.update((partition, offset + 1) for partition, offset, _ in polled if partition in passed)
            now = time.monotonic()
            served_at.update((partition, now) for partition, _, _ in polled if partition in passed)
            if min(served_at.values(), default=now) < now - QUIET_S:
                journal.setbacks["librdkafka, member: gets nothing"] += 1
                return
            time.sleep(load.rest_s)
            if time.monotonic() - committed_at > load.commit_every_s:
                _commit(journal, name, group, consumer, passed)
                committed_at = time.monotonic()
    finally:
        _bounded(consumer.close)


def _commit(journal: Journal, name: str, group: str, consumer: Consumer, passed: dict[TopicPartition, int]) -> None:
    """What was read since the last time."""
    offsets = tuple((partition, offset) for partition, offset in passed.items() if offset != UNTOLD)
    passed.update(dict.fromkeys(passed, UNTOLD))
    if not offsets:
        return
    journal.record(Committing(name, group, offsets))
    try:
        positions = [Position(*each, offset) for each, offset in offsets]
        _bounded(partial(consumer.commit, offsets=positions, asynchronous=False))
        journal.record(Committed(name, group, offsets))
    except KafkaException as error:
        journal.setbacks[f"librdkafka, commit: {error.args[0].name()}"] += 1
        journal.record(CommitFailed(name, group, offsets, definite=False))
    except Hung:
        journal.record(CommitFailed(name, group, offsets, definite=False))
        raise


class Hung(Exception):
    """A client does not come back from a call, and is left behind as it is."""


def _bounded(call: Callable[[], object]) -> None:
    """librdkafka may lock up while all brokers are away: a synchronous commit never returns then (confluent-kafka's
    issue 1801), nor does `close`."""
    outcome: SimpleQueue[Exception | None] = SimpleQueue()

    def work() -> None:
        try:
            call()
            outcome.put(None)
        except Exception as error:
            outcome.put(error)

    threading.Thread(target=work, daemon=True).start()
    try:
        error = outcome.get(timeout=HUNG_S)
    except Empty:
        raise Hung from None
    if error is not None:
        raise error


def _by_hand(bootstrap: str) -> Consumer:
    return Consumer(
        {**_consumer(bootstrap), "group.id": "unused", "auto.offset.reset": "error", "enable.auto.commit": False}
    )


def _consumer(bootstrap: str) -> dict[str, Any]:
    return {
        **_COMMON,
        "bootstrap.servers": bootstrap,
        "isolation.level": "read_committed",
        "check.crcs": True,
    }


def _polled(journal: Journal, name: str, consumer: Consumer) -> list[Landed]:
    polled: list[Landed] = []
    for message in consumer.consume(2000, 0.2):
        error = message.error()
        if error is None:
            polled.append((TopicPartition(message.topic(), message.partition()), message.offset(), message.value()))
        elif error.fatal():
            raise KafkaException(error)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            journal.fail(f"{name}: {error}")
        else:
            journal.setbacks[f"librdkafka, poll: {error.name()}"] += 1
    return polled


def _partition(position: Position) -> TopicPartition:
    return TopicPartition(position.topic, position.partition)
