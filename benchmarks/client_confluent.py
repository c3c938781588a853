"""confluent-kafka under the clients' loads, tuned: deep queues, long batches, no waiting between fetches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from benchmarks.client_load import (
    BATCH_BYTES,
    FETCH_BYTES,
    LINGER_MS,
    LIST_SIZE,
    Figures,
    Stopwatch,
    Work,
    began,
    expect,
    p99_ms,
    run,
)

POLL_EVERY = 500


def _producer(work: Work, **more: object) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": work.address,
            "acks": "all",
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
            **more,
        }
    )
    producer.list_topics(work.topic, timeout=20)
    return producer


def _produce(producer: Producer, work: Work, count: int, **arguments: Any) -> None:
    produce, poll, topic, value = producer.produce, producer.poll, work.topic, work.value
    for number in range(count):
        if number % POLL_EVERY == 0:
            poll(0)
        while True:
            try:
                produce(topic, value, **arguments)
                break
            except BufferError:
                poll(0.01)
    expect(producer.flush(120), 0)


def produce(work: Work) -> Figures:
    """Record by record; only failures are reported."""
    failures: list[object] = []
    producer = _producer(
        work, **{"delivery.report.only.error": True, "on_delivery": lambda error, _: failures.append(error)}
    )
    _produce(producer, work, work.warm_up)
    watch = Stopwatch()
    _produce(producer, work, work.records)
    figures = watch.figures(work.records)
    expect(len(failures), 0)
    return figures


def produce_reported(work: Work) -> Figures:
    """Record by record, the delivery of each one reported."""
    delivered = 0

    def report(error: object, _: object) -> None:
        nonlocal delivered
        delivered += error is None

    producer = _producer(work)
    _produce(producer, work, work.warm_up, on_delivery=report)
    watch = Stopwatch()
    _produce(producer, work, work.records, on_delivery=report)
    figures = watch.figures(work.records)
    expect(delivered, work.warm_up + work.records)
    return figures


def latency(work: Work) -> Figures:
    """From `produce` to the delivery report, so many records a second whether earlier ones are answered or not."""
    producer = _producer(work, **{"linger.ms": 0})
    clock, value, latencies = time.perf_counter, work.value, list[float]()

    def send(count: int, latencies: list[float]) -> None:
        first = clock()
        for number in range(count):
            due = first + number / work.rate
            while (wait := due - clock()) > 0:
                producer.poll(max(wait, 0.001))  # whole milliseconds, or it would spin
            started = began(due, clock())

            def report(error: object, _: object, started: float = started) -> None:
                latencies.append(clock() - started)
                expect(error is None, True)

            producer.produce(work.topic, value, on_delivery=report)
            producer.poll(0)
        expect(producer.flush(20), 0)

    send(work.warm_up, [])
    watch = Stopwatch()
    send(work.records, latencies)
    expect(len(latencies), work.records)
    return {**watch.figures(work.records), "p99_ms": p99_ms(latencies)}


def _consumer(work: Work) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": work.address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 1 << 20,
            "fetch.queue.backoff.ms": 5,
            "fetch.message.max.bytes": FETCH_BYTES,
        }
    )
    consumer.assign([TopicPartition(work.topic, 0, OFFSET_BEGINNING)])
    return consumer


def _lists(consumer: Consumer, work: Work, count: int) -> None:
    seen = 0
    while seen < count:
        messages = consumer.consume(num_messages=min(LIST_SIZE, count - seen), timeout=10)
        if not messages or messages[-1].error():
            raise RuntimeError("no records within 10 s")
        seen += len(messages)


def _one_by_one(consumer: Consumer, work: Work, count: int) -> None:
    poll, total = consumer.poll, 0
    for _ in range(count):
        message = poll(10)
        if message is None or message.error():
            raise RuntimeError(f"no record within 10 s: {message and message.error()}")
        total += len(message.value())
    expect(total, count * work.value_bytes)


def _consuming(read: Callable[[Consumer, Work, int], None]) -> Callable[[Work], Figures]:
    def load(work: Work) -> Figures:
        consumer = _consumer(work)
        read(consumer, work, work.warm_up)
        watch = Stopwatch()
        read(consumer, work, work.records)
        figures = watch.figures(work.records)
        consumer.close()
        return figures

    return load


if __name__ == "__main__":
    run(
        {
            "produce": produce,
            "produce_reported": produce_reported,
            "latency": latency,
            "consume": _consuming(_lists),
            "poll": _consuming(_one_by_one),
        }
    )
