"""Our client under the clients' loads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pyarrow
import uvloop

from barnabas import BufferFull, Consumer, Producer, TopicPartition
from benchmarks.client_load import (
    BATCH_BYTES,
    BUFFER_BYTES,
    FETCH_BYTES,
    LINGER_MS,
    Figures,
    Stopwatch,
    Work,
    began,
    expect,
    p99_ms,
    run,
)

POSTS_PER_TURN = 500


def _producer(work: Work, linger_ms: int = LINGER_MS) -> Producer:
    return Producer(
        work.address,
        acks="all",
        linger_ms=linger_ms,
        batch_size=BATCH_BYTES,
        buffer_memory=BUFFER_BYTES,
    )


async def _send_columns(work: Work) -> Figures:
    """Tables of 10 or 20 MB, one after the other."""
    table = pyarrow.table({"value": pyarrow.array([work.value] * work.warm_up, pyarrow.binary())})

    async def send(count: int) -> None:
        for _ in range(count // table.num_rows):
            await producer.send_columns(work.topic, table)

    async with _producer(work) as producer:
        await send(work.warm_up)
        watch = Stopwatch()
        await send(work.records)
        return watch.figures(work.records)


async def _post(work: Work) -> Figures:
    """Record by record; `flush` raises if one was not delivered, and then all handles must know it."""

    async def send(count: int) -> None:
        post, topic, value = producer.post, work.topic, work.value
        deliveries = []
        for number in range(count):
            if number % POSTS_PER_TURN == 0:
                await asyncio.sleep(0)  # as a program would, and as the other side polls
            while True:
                try:
                    deliveries.append(post(topic, value))
                    break
                except BufferFull:
                    await producer.room()
        await producer.flush()
        expect(sum(delivery.is_done for delivery in deliveries), count)

    async with _producer(work) as producer:
        await send(work.warm_up)
        watch = Stopwatch()
        await send(work.records)
        return watch.figures(work.records)


async def _latency(work: Work) -> Figures:
    """From `send` to its answer, so many records a second whether earlier ones are answered or not."""
    clock, latencies = time.perf_counter, list[float]()

    async def send(started: float, latencies: list[float]) -> None:
        await producer.send(work.topic, work.value)
        latencies.append(clock() - started)

    async def send_all(count: int, latencies: list[float]) -> None:
        first = clock()
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                due = first + number / work.rate
                if (wait := due - clock()) > 0:
                    await asyncio.sleep(wait)
                group.create_task(send(began(due, clock()), latencies))

    async with _producer(work, linger_ms=0) as producer:
        await send_all(work.warm_up, [])
        watch = Stopwatch()
        await send_all(work.records, latencies)
        expect(len(latencies), work.records)
        return {**watch.figures(work.records), "p99_ms": p99_ms(latencies)}


async def _arrow(consumer: Consumer, work: Work, count: int) -> int:
    seen = total = 0
    async for batch in consumer.batches():
        table = batch.to_arrow()
        seen += table.num_rows
        total += table["value"].nbytes
        if seen >= count:
            break
    expect(total >= seen * work.value_bytes, True)
    return seen


async def _records(consumer: Consumer, work: Work, count: int) -> int:
    left, total = count, 0
    async for record in consumer:
        total += len(record.value)
        left -= 1
        if not left:
            break
    expect(total, count * work.value_bytes)
    return count


def _consuming(read: Callable[[Consumer, Work, int], Awaitable[int]]) -> Callable[[Work], Figures]:
    async def load(work: Work) -> Figures:
        consumer = Consumer(work.address, auto_offset_reset="earliest", max_partition_fetch_bytes=FETCH_BYTES)
        async with consumer:
            consumer.assign([TopicPartition(work.topic, 0)])
            warmed_up = await read(consumer, work, work.warm_up)
            watch = Stopwatch()
            count = work.warm_up + work.records - warmed_up
            expect(await read(consumer, work, count), count)
            return watch.figures(count)

    return lambda work: uvloop.run(load(work))


if __name__ == "__main__":
    run(
        {
            "send_columns": lambda work: uvloop.run(_send_columns(work)),
            "post": lambda work: uvloop.run(_post(work)),
            "latency": lambda work: uvloop.run(_latency(work)),
            "batches": _consuming(_arrow),
            "records": _consuming(_records),
        }
    )
