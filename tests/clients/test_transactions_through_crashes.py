"""Three brokers die one after the other, coordinators and leaders among them: every transaction is whole, or is not."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter

import confluent_kafka

from barnabas import Admin, GroupMetadata, OffsetAndMetadata, Producer, TopicPartition
from barnabas.testing import Cluster

PARTITIONS = 3
EACH = 10


class Work:
    """Transactions one after the other, some of them aborted, and what must have come of them."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.committed: list[bytes] = []
        self.offset = 0
        self._cluster = cluster
        self._topic = topic

    async def go_on(self, is_enough: asyncio.Event) -> None:
        chance = random.Random(1)
        number = 0
        async with Producer(self._cluster.bootstrap, transactional_id="of-crashes", linger_ms=0) as producer:
            while not is_enough.is_set():
                values = [b"%d" % value for value in range(number, number + EACH)]
                number += EACH
                try:
                    await self._transact(producer, values, number, aborts=chance.random() < 0.2)
                except ZeroDivisionError:
                    continue
                self.committed += values
                self.offset = number

    async def gets_on(self) -> None:
        before = len(self.committed)
        while len(self.committed) < before + 5 * EACH:  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0.02)

    async def _transact(self, producer: Producer, values: list[bytes], offset: int, *, aborts: bool) -> None:
        offsets = {TopicPartition(self._topic, 0): OffsetAndMetadata(offset)}
        async with producer.transaction() as transaction:
            await producer.send_many(self._topic, values)
            await transaction.send_offsets(offsets, GroupMetadata("of-crashes"))
            if aborts:
                raise ZeroDivisionError


async def kill_each(cluster: Cluster, work: Work) -> None:
    """Work must go on without any of them; each is back in sync before the next one dies."""
    await work.gets_on()
    async with Admin(cluster.bootstrap) as admin:
        for broker in cluster.brokers:
            await asyncio.to_thread(cluster.kill, broker)
            await work.gets_on()
            await asyncio.to_thread(cluster.start, broker)
            while not await is_whole(admin):  # noqa: ASYNC110  # nobody tells
                await asyncio.sleep(0.05)


async def is_whole(admin: Admin) -> bool:
    topics = await admin.topics.list(internal=True)
    return all(len(partition.isr) == len(partition.replicas) for topic in topics for partition in topic.partitions)


def judge(address: str, topic: str, count: int) -> tuple[Counter[bytes], int]:
    """What librdkafka finds that is committed: so many values, what comes the moment after, and the group's offset."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "of-crashes",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        found: Counter[bytes] = Counter()
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline:
            for message in consumer.consume(1000, timeout=0.3):
                assert message.error() is None, message.error()
                found[message.value()] += 1
            if found.total() >= count:
                deadline = min(deadline, time.monotonic() + 0.5)
        (place,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=60)
        return found, place.offset
    finally:
        consumer.close()


def test_no_transaction_is_lost_doubled_or_torn() -> None:
    with Cluster(brokers=3) as cluster:
        topic = cluster.create_topic(partitions=PARTITIONS)
        work = Work(cluster, topic)

        async def live() -> None:
            is_enough = asyncio.Event()
            async with asyncio.timeout(90), asyncio.TaskGroup() as tasks:
                tasks.create_task(work.go_on(is_enough))
                await kill_each(cluster, work)
                is_enough.set()

        asyncio.run(live())
        found, offset = judge(cluster.bootstrap, topic, len(work.committed))
    assert found == Counter(work.committed)
    assert offset == work.offset
