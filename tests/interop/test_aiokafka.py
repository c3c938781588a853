"""aiokafka: an asyncio client in Python, by assignment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAlreadyExistsError

from tests import peers
from tests.peers import Broker

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]


@asynccontextmanager
async def started(client: Any) -> AsyncIterator[Any]:
    await client.start()
    try:
        yield client
    finally:
        await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())


async def produce(address: str, topic: str, values: list[bytes], **settings: object) -> list[Any]:
    async with started(AIOKafkaProducer(bootstrap_servers=address, **settings)) as producer:
        sent = [
            await producer.send(topic, value, b"key", partition=0, headers=[("n", b"%d" % i)])
            for i, value in enumerate(values)
        ]
        return [await answer for answer in sent]


async def consume(consumer: Any, count: int) -> list[Any]:
    return [await asyncio.wait_for(consumer.getone(), 15) for _ in range(count)]


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_whole(broker: Broker, new_topic: peers.NewTopic, codec: str | None) -> None:
    topic = new_topic()
    values = [b"%d " % i + b"abc" * 30 for i in range(200)]

    async def scenario() -> None:
        delivered = await produce(broker.address, topic, values, compression_type=codec, linger_ms=20)
        assert [answer.offset for answer in delivered] == list(range(200))
        async with started(AIOKafkaConsumer(bootstrap_servers=broker.address)) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            await consumer.seek_to_beginning()
            records = await consume(consumer, 200)
        assert [record.value for record in records] == values
        assert [record.offset for record in records] == list(range(200))
        assert [record.headers for record in records] == [(("n", b"%d" % i),) for i in range(200)]

    asyncio.run(scenario())


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_acknowledgement_is_served(broker: Broker, new_topic: peers.NewTopic, acks: int | str) -> None:
    topic = new_topic()

    async def scenario() -> None:
        await produce(broker.address, topic, [b"a", b"b"], acks=acks)
        async with started(AIOKafkaConsumer(bootstrap_servers=broker.address)) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            await consumer.seek_to_beginning()
            assert [record.value for record in await consume(consumer, 2)] == [b"a", b"b"]

    asyncio.run(scenario())


def test_an_idempotent_producer_works(broker: Broker, new_topic: peers.NewTopic) -> None:
    topic = new_topic()

    async def scenario() -> None:
        delivered = await produce(broker.address, topic, [b"x"] * 100, enable_idempotence=True, max_batch_size=500)
        assert [answer.offset for answer in delivered] == list(range(100))

    asyncio.run(scenario())


def test_reading_starts_at_a_time(broker: Broker, new_topic: peers.NewTopic) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    now_ms = int(time.time() * 1000)

    async def scenario() -> None:
        async with started(AIOKafkaProducer(bootstrap_servers=broker.address)) as producer:
            for i in range(5):
                await producer.send_and_wait(topic, b"%d" % i, partition=0, timestamp_ms=now_ms + 1000 * i)
        async with started(AIOKafkaConsumer(bootstrap_servers=broker.address)) as consumer:
            consumer.assign([partition])
            found = (await consumer.offsets_for_times({partition: now_ms + 2500}))[partition]
            assert (found.offset, found.timestamp) == (3, now_ms + 3000)
            consumer.seek(partition, found.offset)
            assert [record.value for record in await consume(consumer, 2)] == [b"3", b"4"]
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: 5}

    asyncio.run(scenario())


def test_topics_are_administered(broker: Broker, topic_name: str) -> None:
    async def scenario() -> None:
        async with started(AIOKafkaAdminClient(bootstrap_servers=broker.address)) as admin:
            await admin.create_topics([NewTopic(topic_name, 2, 1, topic_configs={"retention.ms": "777"})])
            refused = await admin.create_topics([NewTopic(topic_name, 2, 1)])
            assert [answer[1] for answer in refused.topic_errors] == [TopicAlreadyExistsError.errno]
            assert topic_name in await admin.list_topics()

            await admin.create_partitions({topic_name: NewPartitions(3)})
            [described] = await admin.describe_topics([topic_name])
            assert sorted(partition["partition"] for partition in described["partitions"]) == [0, 1, 2]

            resource = ConfigResource(ConfigResourceType.TOPIC, topic_name)
            [answer] = await admin.describe_configs([resource])
            [(_, _, _, _, entries)] = answer.resources
            assert {entry[0]: entry[1] for entry in entries}["retention.ms"] == "777"

            await produce(broker.address, topic_name, [b"x"] * 4)
            trimmed = await admin.delete_records({TopicPartition(topic_name, 0): RecordsToDelete(before_offset=3)})
            assert trimmed == {TopicPartition(topic_name, 0): 3}

            await admin.delete_topics([topic_name])

    asyncio.run(scenario())
