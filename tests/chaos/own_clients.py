"""Our own clients under faults: producers, readers, members of groups of both protocols, and exactly-once copiers.

They run on one loop. A client that can do nothing more is replaced by another one under the next name.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Literal

from barnabas import (
    BufferFull,
    Consumer,
    Delivery,
    KafkaError,
    OutcomeUnknown,
    Producer,
    ProducerUnusable,
    Transaction,
)
from barnabas import TopicPartition as Place
from barnabas.client.consume.consumed import ConsumerRecord
from barnabas.client.consume.consumer_errors import CorruptRecords, LogTruncated, NoOffset
from tests.chaos.journal import Journal, Landed
from tests.chaos.load import COPY, PLAIN, Load
from tests.checker.history import (
    UNTOLD,
    Assigned,
    CommitFailed,
    Committed,
    Committing,
    Failed,
    Offsets,
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
REQUEST_TIMEOUT_MS = 5_000
BLOCK_MS = 20_000
Protocol = Literal["classic", "consumer"]
Posted = tuple[TopicPartition, bytes, Delivery]


class Unwanted(Exception):
    """A transaction that is to be aborted."""


# producers


async def idempotent(journal: Journal, load: Load, bootstrap: str, role: str) -> None:
    for life in itertools.count(1):
        if not journal.writing.is_set():
            return
        try:
            await _write(journal, load, bootstrap, role, f"{role}.{life}")
        except KafkaError as error:
            journal.setbacks[f"own: {error.code.name}"] += 1
            await asyncio.sleep(0.2)


async def _write(journal: Journal, load: Load, bootstrap: str, role: str, name: str) -> None:
    posted: deque[Posted] = deque()
    async with Producer(bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS, delivery_timeout_ms=300_000) as producer:
        for partition, values in load.bursts(name):
            await asyncio.sleep(load.pause_s)
            known = list(itertools.takewhile(lambda each: each[2].is_done, posted))
            for _ in known:
                posted.popleft()
            if await _learn(journal, name, known):
                journal.moved(role)
            if not journal.writing.is_set():
                break
            if len(posted) > MOST_UNACKNOWLEDGED or not values:
                continue
            journal.record(Sent(name, partition, values))
            posted += [(partition, value, await _post(producer, load, partition, value)) for value in values]
        await _learn(journal, name, posted)


async def _post(producer: Producer, load: Load, partition: TopicPartition, value: bytes) -> Delivery:
    while True:
        try:
            return producer.post(partition.topic, value, key=load.padding, partition=partition.partition)
        except BufferFull:
            await producer.room()


async def _learn(journal: Journal, name: str, posted: Iterable[Posted]) -> int:
    """Wait for the fates of records and write them down; how many were acknowledged."""
    landed: list[Landed] = []
    for partition, value, delivery in posted:
        try:
            landed.append((partition, (await delivery).offset, value))
        except KafkaError as error:
            journal.setbacks[f"own: {error.code.name}"] += 1
            journal.record(Failed(name, partition, (value,), definite=False))
    journal.acknowledge(name, landed)
    return len(landed)


async def transactional(journal: Journal, load: Load, bootstrap: str, role: str) -> None:
    """Each transaction writes, and then reads what others have written there."""
    numbers = itertools.count(1)
    for life in itertools.count(1):
        if not journal.writing.is_set():
            return
        name = f"{role}.{life}"
        try:
            async with _transactional_producer(bootstrap, role) as producer, _by_hand(bootstrap) as consumer:
                consumer.assign({Place(*each): offset for each, offset in journal.begin(name, role, load.ledger)})
                for sends, is_to_commit in load.transactions(name):
                    if not journal.writing.is_set():
                        break
                    transaction = f"{role}/{next(numbers)}"

                    async def look(_: Transaction, name: str = name, transaction: str = transaction) -> None:
                        journal.look(name, role, await _polled(journal, name, consumer), transaction)

                    if await _transact(journal, load, producer, name, transaction, sends, is_to_commit, look):
                        journal.moved(role)
                    await asyncio.sleep(load.rest_s)
        except KafkaError as error:
            journal.setbacks[f"own, transactions: {type(error).__name__} {error.code.name}"] += 1
            await asyncio.sleep(0.2)


def _transactional_producer(bootstrap: str, role: str) -> Producer:
    return Producer(
        bootstrap,
        transactional_id=role,
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        max_block_ms=BLOCK_MS,
        linger_ms=2,
    )


async def _transact(
    journal: Journal,
    load: Load,
    producer: Producer,
    name: str,
    transaction: str,
    sends: Iterable[tuple[TopicPartition, tuple[bytes, ...]]],
    is_to_commit: bool,
    before_end: Callable[[Transaction], Awaitable[None]],
) -> bool:
    """Whether it was committed; a producer that can do nothing more raises, after what it knows is written down.

    A value that was made of another ends with it.
    """
    outcome = Outcome.ABORTED
    journal.record(TransactionBegun(name, transaction))
    try:
        async with producer.transaction() as open_transaction:
            posted: list[Posted] = []
            for partition, values in sends:
                origins = tuple(value.partition(b" ")[2] for value in values if b" " in value)
                journal.record(Sent(name, partition, values, transaction, origins))
                posted += [(partition, value, await _post(producer, load, partition, value)) for value in values]
            await _learn(journal, name, posted)
            await before_end(open_transaction)
            wanted = Outcome.COMMITTED if is_to_commit else Outcome.ABORTED
            journal.record(TransactionEnding(name, transaction, wanted))
            if not is_to_commit:
                raise Unwanted
        outcome = Outcome.COMMITTED
        journal.committed_transactions += 1
    except Unwanted:
        pass
    except OutcomeUnknown:
        outcome = Outcome.UNKNOWN
        raise
    except ProducerUnusable:
        raise
    except KafkaError as error:
        journal.setbacks[f"own, aborted: {error.code.name}"] += 1
    finally:
        journal.record(TransactionEnded(name, transaction, outcome))
    return outcome is Outcome.COMMITTED


# consumers


async def reader(journal: Journal, load: Load, bootstrap: str, role: str) -> None:
    """All partitions, by hand, from the beginning."""
    async with _by_hand(bootstrap) as consumer:
        consumer.assign({Place(*each): offset for each, offset in journal.begin(role, role, load.partitions)})
        while journal.reading.is_set():
            journal.poll(role, role, await _polled(journal, role, consumer))
            await asyncio.sleep(load.rest_s)


def _by_hand(bootstrap: str) -> Consumer:
    return Consumer(
        bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="none",
        request_timeout_ms=REQUEST_TIMEOUT_MS,
    )


async def member(journal: Journal, load: Load, bootstrap: str, role: str, group: str, protocol: Protocol) -> None:
    for life in itertools.count(1):
        if not journal.reading.is_set():
            return
        passed: dict[Place, int] = {}
        try:
            async with _member(journal, bootstrap, f"{role}.{life}", group, protocol, load.topics, passed) as consumer:
                await _belong(journal, load, consumer, f"{role}.{life}", group, passed)
        except KafkaError as error:
            journal.setbacks[f"own, member: {error.code.name}"] += 1
            await asyncio.sleep(0.2)


def _member(
    journal: Journal,
    bootstrap: str,
    name: str,
    group: str,
    protocol: Protocol,
    topics: Iterable[str],
    passed: dict[Place, int],
) -> Consumer:
    """`passed` forgets the partitions that it loses."""

    def assigned(partitions: list[Place]) -> None:
        journal.record(Assigned(name, tuple((TopicPartition(*each), UNTOLD) for each in partitions), group))

    def revoked(partitions: list[Place]) -> None:
        for partition in partitions:
            passed.pop(partition, None)
        journal.record(Revoked(name, tuple(TopicPartition(*each) for each in partitions)))

    return Consumer(
        bootstrap,
        topics=topics,
        group=group,
        group_protocol=protocol,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        session_timeout_ms=6000 if protocol == "classic" else None,
        max_poll_interval_ms=Load.poll_interval_ms,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        on_assigned=assigned,
        on_revoked=revoked,
        on_lost=revoked,
    )


async def _belong(
    journal: Journal, load: Load, consumer: Consumer, name: str, group: str, passed: dict[Place, int]
) -> None:
    committed_at = asyncio.get_running_loop().time()
    while journal.reading.is_set():
        polled = await _polled(journal, name, consumer)
        journal.poll(name, group, polled)
        passed.update((Place(*partition), offset + 1) for partition, offset, _ in polled)
        await asyncio.sleep(load.rest_s)
        now = asyncio.get_running_loop().time()
        if now - committed_at > load.commit_every_s:
            committed_at = now
            positions = dict(passed)
            passed.clear()
            await _commit(journal, name, group, consumer, positions)


async def _commit(journal: Journal, name: str, group: str, consumer: Consumer, positions: dict[Place, int]) -> None:
    if not positions:
        return
    offsets = _offsets(positions)
    journal.record(Committing(name, group, offsets))
    try:
        await consumer.commit(positions)
        journal.record(Committed(name, group, offsets))
    except KafkaError as error:
        journal.setbacks[f"own, commit: {error.code.name}"] += 1
        journal.record(CommitFailed(name, group, offsets, definite=False))


async def copier(journal: Journal, load: Load, bootstrap: str, role: str, group: str, protocol: Protocol) -> None:
    """Every record of one topic becomes one of another: it and the place that was reached are written together."""
    numbers = itertools.count(1)
    for life in itertools.count(1):
        if not journal.reading.is_set():
            return
        name = f"{role}.{life}"
        try:
            async with (
                _member(journal, bootstrap, name, group, protocol, [PLAIN], {}) as consumer,
                _transactional_producer(bootstrap, role) as producer,
            ):
                while journal.reading.is_set():
                    if polled := await _polled(journal, name, consumer):
                        transaction = f"{role}/{next(numbers)}"
                        journal.poll(name, group, polled, transaction)
                        if not await _copy(journal, load, producer, consumer, name, transaction, polled):
                            consumer.rewind()
                            back = tuple((TopicPartition(*each), UNTOLD) for each in consumer.assignment())
                            journal.record(Assigned(name, back, group))
                    await asyncio.sleep(load.rest_s)
        except KafkaError as error:
            journal.setbacks[f"own, copier: {type(error).__name__} {error.code.name}"] += 1
            await asyncio.sleep(0.2)


async def _copy(
    journal: Journal,
    load: Load,
    producer: Producer,
    consumer: Consumer,
    name: str,
    transaction: str,
    polled: list[Landed],
) -> bool:
    copies: dict[TopicPartition, list[bytes]] = {}
    for number, (partition, _, value) in enumerate(polled):  # what comes twice is copied twice, and the checker tells
        place = TopicPartition(COPY, partition.partition)
        copies.setdefault(place, []).append(b"%s.%d %s" % (transaction.encode(), number, value))
    sends = [(partition, tuple(values)) for partition, values in copies.items()]

    async def commit_place(open_transaction: Transaction) -> None:
        offsets = _offsets({each: place.offset for each, place in consumer.passed().items()})
        journal.record(Committing(name, consumer.group_metadata().group_id, offsets, transaction))
        await open_transaction.send_offsets(consumer)

    return await _transact(journal, load, producer, name, transaction, sends, True, commit_place)


async def _polled(journal: Journal, name: str, consumer: Consumer) -> list[Landed]:
    try:
        records: list[ConsumerRecord] = await consumer.poll(timeout_ms=200, max_records=2000)
    except (LogTruncated, NoOffset) as error:
        journal.fail(f"{name}: {error}")
        raise
    except KafkaError as error:
        if not error.retriable and not isinstance(error, CorruptRecords):
            raise  # what is damaged will be mended
        journal.setbacks[f"own, poll: {error.code.name}"] += 1
        return []
    return [(TopicPartition(record.topic, record.partition), record.offset, record.value) for record in records]


def _offsets(positions: dict[Place, int]) -> Offsets:
    return tuple((TopicPartition(*partition), offset) for partition, offset in positions.items())
