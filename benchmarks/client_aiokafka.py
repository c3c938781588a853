"""aiokafka under the clients' loads, on uvloop like ours."""

from __future__ import annotations

import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from benchmarks.client_load import BATCH_BYTES, FETCH_BYTES, LINGER_MS, Figures, Stopwatch, Work, expect, run


async def _produce(work: Work) -> Figures:
    """`send` gives a future for each record; all of them are waited for."""
    producer = AIOKafkaProducer(
        bootstrap_servers=work.address, acks="all", linger_ms=LINGER_MS, max_batch_size=BATCH_BYTES
    )

    async def send(count: int) -> None:
        topic, value = work.topic, work.value
        futures = [await producer.send(topic, value) for _ in range(count)]
        await producer.flush()
        expect(sum([(await future).offset >= 0 for future in futures]), count)

    async with producer:
        await send(work.warm_up)
        watch = Stopwatch()
        await send(work.records)
        return watch.figures(work.records)


async def _read(consumer: AIOKafkaConsumer, work: Work, count: int) -> None:
    left, total = count, 0
    async for record in consumer:
        total += len(record.value)
        left -= 1
        if not left:
            break
    expect(total, count * work.value_bytes)


async def _consume(work: Work) -> Figures:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=work.address,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=FETCH_BYTES,
    )
    async with consumer:
        consumer.assign([TopicPartition(work.topic, 0)])
        await _read(consumer, work, work.warm_up)
        watch = Stopwatch()
        await _read(consumer, work, work.records)
        return watch.figures(work.records)


if __name__ == "__main__":
    run({"produce": lambda work: uvloop.run(_produce(work)), "consume": lambda work: uvloop.run(_consume(work))})
