"""A broker that is killed and comes back costs the client time, and no record."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from barnabas.client.admin.topics import Topics
from barnabas.client.client import connect
from barnabas.client.consumer import Consumer
from barnabas.client.metadata import TopicPartition
from barnabas.client.producer import Producer
from barnabas.core.errors import KafkaError
from tests.peers import BarnabasServer, free_port

RECORDS = 3000
PARTITION = TopicPartition("orders", 0)


def test_nothing_is_lost_or_doubled_or_out_of_order_through_two_crashes(tmp_path: Path) -> None:
    port = free_port()
    servers = [BarnabasServer(tmp_path / "data", port=port)]

    def crash_and_restart() -> None:
        servers[-1].kill()
        servers.append(BarnabasServer(tmp_path / "data", port=port))

    async def produce(producer: Producer) -> None:
        for number in range(RECORDS):
            producer.post("orders", b"%d" % number)
            if number % 10 == 0:
                await asyncio.sleep(0.005)
        await producer.flush()

    async def consume(consumer: Consumer) -> list[int]:
        consumer.assign({PARTITION: 0})
        found: list[int] = []
        while len(found) < RECORDS:
            found += [int(record.value) for record in await consumer.poll()]
        return found

    async def session() -> list[int]:
        async with asyncio.timeout(60), connect(f"127.0.0.1:{port}") as client:
            await Topics(client).create("orders", partitions=1)
            async with Producer(client, linger_ms=2) as producer, Consumer(client) as consumer:
                producing = asyncio.create_task(produce(producer))
                consuming = asyncio.create_task(consume(consumer))
                for _ in range(2):
                    await asyncio.sleep(0.4)
                    await asyncio.to_thread(crash_and_restart)
                await producing
                return await consuming

    try:
        assert asyncio.run(session()) == list(range(RECORDS))
    finally:
        servers[-1].stop()


def test_a_broker_that_stays_away_fails_the_delivery_in_time(tmp_path: Path) -> None:
    server = BarnabasServer(tmp_path / "data")

    async def session() -> None:
        async with (
            asyncio.timeout(30),
            connect(server.address, retry_timeout_ms=5000) as client,
            Producer(client, delivery_timeout_ms=5000) as producer,
        ):
            await producer.send("orders", b"there")
            server.kill()
            gone = producer.post("orders", b"not there")
            with pytest.raises(KafkaError, match=r"cannot reach broker .*; is it (still )?running") as caught:
                await producer.flush()
            assert caught.value.code.retriable
            with pytest.raises(KafkaError):
                await gone

    try:
        asyncio.run(session())
    finally:
        server.kill()
