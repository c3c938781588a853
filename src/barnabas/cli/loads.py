"""Loads for a cluster, and what comes of them."""

from __future__ import annotations

import asyncio
import sys
from random import Random

from barnabas.cli.measure import Load
from barnabas.cli.progress import Unit, progress
from barnabas.cli.reading import Ends, open_consumer, read
from barnabas.client.client import Client
from barnabas.client.consumer import Consumer
from barnabas.client.errors import BufferFull
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import Beginning, End
from barnabas.client.produce.delivery import Delivery
from barnabas.client.producer import Producer

_POSTS_PER_TURN = 500
_MOST_SAMPLES = 5_000
"""Latencies are taken of as many records at the most, spread evenly, so that the load does not suffer from it."""
_VALUES = 64
_SEED = 1
_LETTERS = b"abcdefghijklmnop"


def values(size: int) -> list[bytes]:
    """Values of 16 letters, which compress to about a half; the same in every run."""
    random = Random(_SEED)
    return [bytes(random.choices(_LETTERS, k=size)) for _ in range(_VALUES)]


async def produce(client: Client, producer: Producer, topic: str, records: int, size: int, rate: float | None) -> Load:
    """Records of no key, as fast as there is room for them, or each at its time."""
    load, payloads, now = Load(records, records * size), values(size), client.clock.monotonic
    every = -(-records // _MOST_SAMPLES)
    await _partitions(client, topic)
    async with asyncio.TaskGroup() as samples:

        async def sample(delivery: Delivery, due: float) -> None:
            await delivery
            load.latencies_ms.append((now() - due) * 1000)

        with progress("sending", records, Unit.RECORDS) as on_progress:
            started = now()
            for number in range(records):
                due = now() if rate is None else started + number / rate
                if rate is not None and (early := due - now()) > 0:
                    await asyncio.sleep(early)
                elif number % _POSTS_PER_TURN == 0:
                    await asyncio.sleep(0)
                try:
                    delivery = producer.post(topic, payloads[number % _VALUES])
                except BufferFull:
                    delivery = await _post_later(producer, topic, payloads[number % _VALUES])
                if number % every == 0:
                    samples.create_task(sample(delivery, due))
                    on_progress(number)
            await producer.flush()
            load.seconds = now() - started
    return load


async def _post_later(producer: Producer, topic: str, value: bytes) -> Delivery:
    while True:
        await producer.room()
        try:
            return producer.post(topic, value)
        except BufferFull:
            continue


async def consume(client: Client, topic: str, records: int | None) -> Load:
    """All records that are there, or the first ones."""
    load, now = Load(), client.clock.monotonic
    partitions = await _partitions(client, topic)
    async with open_consumer(client, partitions, Beginning(), None, "read_uncommitted") as consumer:
        ends = Ends(consumer)
        started = now()
        total = min(await ends.left(), records or sys.maxsize)
        with progress("reading", total, Unit.RECORDS) as on_progress:
            async for some in read(consumer, ends, records):
                load.records += len(some)
                load.size_bytes += sum(len(record.value or b"") + len(record.key or b"") for record in some)
                on_progress(load.records)
        load.seconds = now() - started
    return load


async def round_trips(client: Client, producer: Producer, topic: str, records: int, size: int, rate: float) -> Load:
    """Records that are written at their times, and read as they come; the key tells which one it is."""
    load, payloads, now = Load(records, records * size), values(size), client.clock.monotonic
    mark = client.random.randbytes(8)
    partitions = await _partitions(client, topic)
    async with open_consumer(client, partitions, End(), None, "read_uncommitted") as consumer:
        started = now()
        with progress("on their way", records, Unit.RECORDS) as on_progress:

            async def write() -> None:
                for number in range(records):
                    await asyncio.sleep(started + number / rate - now())
                    producer.post(topic, payloads[number % _VALUES], key=mark + number.to_bytes(8))
                await producer.flush()  # raises for a record that nobody will ever read

            async def read_back(consumer: Consumer) -> None:
                while len(load.latencies_ms) < records:
                    for record in await consumer.poll():
                        if record.key is not None and record.key.startswith(mark):
                            due = started + int.from_bytes(record.key[len(mark) :]) / rate
                            load.latencies_ms.append((now() - due) * 1000)
                    on_progress(len(load.latencies_ms))

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(write())
                tasks.create_task(read_back(consumer))
        load.seconds = now() - started
    return load


async def _partitions(client: Client, topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, each.partition) for each in (await client.metadata.topic(topic)).partitions]
