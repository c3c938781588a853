"""Topics that librdkafka makes and fills, as the outside source of what consumers read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.peers import eventually

T = TypeVar("T")


class Source:
    """One topic of a cluster, seen from outside. With 0 partitions it is there already, and has one."""

    def __init__(self, address: str, topic: str, partitions: int = 1) -> None:
        self.address = address
        self.topic = topic
        self._settings = {"bootstrap.servers": address, "log_level": 0}
        self._admin = AdminClient(self._settings)
        if partitions:
            self.create(topic, partitions)
        else:
            self._expect(topic, 1)

    def create(self, topic: str, partitions: int = 1) -> None:
        self._admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)
        self._expect(topic, partitions)

    def grow(self, partitions: int) -> None:
        self._admin.create_partitions([NewPartitions(self.topic, partitions)])[self.topic].result(60)
        self._expect(self.topic, partitions)

    def delete(self) -> None:
        self._admin.delete_topics([self.topic])[self.topic].result(60)
        self._expect(self.topic, 0)

    def _expect(self, topic: str, partitions: int) -> None:
        """Wait until the cluster knows it, and forget what librdkafka knew before."""
        eventually(lambda: self._leaders(topic), partitions)
        self._producer = confluent_kafka.Producer({**self._settings, "linger.ms": 0})

    def _leaders(self, topic: str) -> int:
        found = self._admin.list_topics(timeout=60).topics.get(topic)
        return sum(partition.leader >= 0 for partition in found.partitions.values()) if found else 0

    def write(
        self, values: Iterable[bytes | None], partition: int = 0, topic: str | None = None, **fields: object
    ) -> None:
        for value in values:
            self._producer.produce(topic or self.topic, value, partition=partition, **fields)
        assert self._producer.flush(60) == 0

    def delete_before(self, offset: int, partition: int = 0) -> None:
        place = confluent_kafka.TopicPartition(self.topic, partition, offset)
        self._admin.delete_records([place])[place].result(60)

    def committed(self, group: str, partition: int = 0) -> int:
        """What the group has committed, as librdkafka sees it; -1001 if nothing."""
        wanted = confluent_kafka.ConsumerGroupTopicPartitions(
            group, [confluent_kafka.TopicPartition(self.topic, partition)]
        )
        found = self._admin.list_consumer_group_offsets([wanted])[group].result(60)
        offset: int = found.topic_partitions[0].offset
        return offset

    def transactional(self) -> confluent_kafka.Producer:
        producer = confluent_kafka.Producer({**self._settings, "transactional.id": self.topic})
        producer.init_transactions(30)
        return producer


def run(work: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(60):
            return await work()

    return asyncio.run(bounded())


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]
