"""librdkafka's clients under faults: producers, readers of their own, and members of groups of both protocols.

A client that can do nothing more is replaced by another one under the next name.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from contextlib import suppress
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
_SILENT = logging.getLogger("tests.chaos.librdkafka")
_SILENT.disabled = True  # what it calls fatal is what its application is told
_COMMON = {
    "logger": _SILENT,
    "error_cb": lambda _: None,
    "socket.timeout.ms": 5000,
    "reconnect.backoff.max.ms": 1000,
}


# producers


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


def idempotent(journal: Journal, load: Load, bootstrap: str, role: str) -> None:
    for life in itertools.count(1):
        if not journal.writing.is_set():
            return
        _write(journal, load, bootstrap, role, f"{role}.{life}")


def _write(journal: Journal, load: Load, bootstrap: str, role: str, name: str) -> None:
    """Until it is over, or nothing more can be sent."""
    fatal: list[KafkaError] = []
    producer = Producer(
        {
            **_COMMON,
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
    numbers = itertools.count(1)
    for life in itertools.count(1):
        if not journal.writing.is_set():
            return
        _transact(journal, load, bootstrap, role, f"{role}.{life}", numbers)


def _transact(
    journal: Journal, load: Load, bootstrap: str, role: str, name: str, numbers: itertools.count[int]
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
    except KafkaException as error:
        journal.setbacks[f"librdkafka, fatal: {error.args[0].name()}"] += 1
        if transaction:
            outcome = Outcome.UNKNOWN if is_committing else Outcome.ABORTED
            journal.record(TransactionEnded(name, transaction, outcome))
        time.sleep(0.2)
    finally:
        with suppress(KafkaException):  # what cannot go on says so once more
            producer.purge()
            producer.flush(1)
        deliveries.write_down()


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
    consumer = Consumer(
        {**_consumer(bootstrap), "group.id": "unused", "auto.offset.reset": "error", "enable.auto.commit": False}
    )
    journal.record(Assigned(role, tuple((partition, 0) for partition in load.partitions)))
    consumer.assign([Position(*partition, 0) for partition in load.partitions])
    try:
        while journal.reading.is_set():
            journal.poll(role, role, _polled(journal, role, consumer))
            time.sleep(load.rest_s)
    finally:
        consumer.close()


def member(journal: Journal, load: Load, bootstrap: str, role: str, group: str, protocol: dict[str, Any]) -> None:
    for life in itertools.count(1):
        if not journal.reading.is_set():
            return
        try:
            _belong(journal, load, bootstrap, f"{role}.{life}", group, protocol)
        except KafkaException as error:
            journal.setbacks[f"librdkafka, member: {error.args[0].name()}"] += 1
            time.sleep(0.2)


def _belong(journal: Journal, load: Load, bootstrap: str, name: str, group: str, protocol: dict[str, Any]) -> None:
    passed: dict[TopicPartition, int] = {}
    """How far the partitions are read that this member has."""

    def assigned(_: Consumer, partitions: list[Position]) -> None:
        got = tuple((_partition(each), UNTOLD) for each in partitions)
        passed.update(got)
        if got:
            journal.record(Assigned(name, got, group))

    def revoked(_: Consumer, partitions: list[Position]) -> None:
        lost = tuple(map(_partition, partitions))
        for partition in lost:
            passed.pop(partition, None)
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
            time.sleep(load.rest_s)
            if time.monotonic() - committed_at > load.commit_every_s:
                _commit(journal, name, group, consumer, passed)
                committed_at = time.monotonic()
    finally:
        consumer.close()


def _commit(journal: Journal, name: str, group: str, consumer: Consumer, passed: dict[TopicPartition, int]) -> None:
    """What was read since the last time."""
    offsets = tuple((partition, offset) for partition, offset in passed.items() if offset != UNTOLD)
    passed.update(dict.fromkeys(passed, UNTOLD))
    if not offsets:
        return
    journal.record(Committing(name, group, offsets))
    try:
        consumer.commit(offsets=[Position(*each, offset) for each, offset in offsets], asynchronous=False)
        journal.record(Committed(name, group, offsets))
    except KafkaException as error:
        journal.setbacks[f"librdkafka, commit: {error.args[0].name()}"] += 1
        journal.record(CommitFailed(name, group, offsets, definite=False))


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
