"""Idempotent producers and a consumer at work on one topic while brokers fail, and the history of what they learnt."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as Position

from tests.checker.checker import anomalies
from tests.checker.expectations import Expectations
from tests.checker.history import UNTOLD, Acknowledged, FinalLog, History, Polled, Record, Sent, TopicPartition
from tests.cluster.whole_logs import read_to_end

PRODUCERS = ("ann", "ben", "cyd")
PACE_S = 0.005
PADDING = b"." * 200
MOST_UNACKNOWLEDGED = 500
LIFE = 0  # the machine does not go down here


class Traffic:
    """Every producer writes to every partition, `acks=all`, as fast as its pace and the acknowledgements let it."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, pace_s: float = PACE_S) -> None:
        """Each producer sends a record every `pace_s`."""
        self.history = History(time.monotonic)
        self.failures: list[str] = []
        self._bootstrap = bootstrap
        self._pace_s = pace_s
        self._partitions = [TopicPartition(topic, index) for index in range(partitions)]
        self._stopping = threading.Event()
        self._acknowledged: Counter[TopicPartition] = Counter()
        works: list[tuple[Callable[..., None], tuple[str, ...]]] = [(self._produce, (name,)) for name in PRODUCERS]
        works.append((self._consume, ("reader",)))
        self._threads = [threading.Thread(target=self._guarded, args=work, daemon=True) for work in works]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self._threads), "a client does not come to its end"

    def until_all_move(self, records: int = 20, timeout: float = 60) -> None:
        """Return when so many more records are acknowledged in each partition."""
        goals = {partition: self._acknowledged[partition] + records for partition in self._partitions}
        deadline = time.monotonic() + timeout
        while any(self._acknowledged[partition] < goal for partition, goal in goals.items()):
            assert not self.failures, self.failures[:5]
            assert time.monotonic() < deadline, f"acknowledged: {dict(self._acknowledged)}, to be reached: {goals}"
            time.sleep(0.05)

    def read_all(self) -> list[int]:
        """Read the whole topic once all clients have ended; the high watermarks of its partitions."""
        logs, _ = read_to_end(self._bootstrap, self._partitions)
        for partition, records in logs.items():
            self.history.record(FinalLog(partition, 0, tuple(records)))
        return [len(records) for records in logs.values()]

    def anomalies(self) -> list[str]:
        """What went wrong for the clients, and what they learnt that does not fit one log per partition."""
        found = anomalies(self.history.events, Expectations(idempotent_producers=PRODUCERS))
        return [*self.failures, *map(str, found)]

    # the clients

    def _guarded(self, work: Callable[..., None], arguments: tuple[str, ...]) -> None:
        try:
            work(*arguments)
        except Exception as error:
            self.failures.append(f"{work.__name__}{arguments}: {error!r}")

    def _produce(self, name: str) -> None:
        producer = Producer(
            {
                **_client(self._bootstrap),
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "socket.timeout.ms": 3000,  # a broker that hangs is given up before it goes on
            }
        )

        def done(error: KafkaError | None, message: Message) -> None:
            partition = TopicPartition(message.topic(), message.partition())
            if error is not None:
                self.failures.append(f"{name}: {partition}: {error}")
                return
            # Where a request has failed and the next one has not, librdkafka knows only that the first was carried out.
            offset = UNTOLD if message.offset() is None else message.offset()
            self.history.record(Acknowledged(name, LIFE, partition, offset, (message.value(),)))
            self._acknowledged[partition] += 1

        for number in count():
            if self._stopping.is_set():
                break
            producer.poll(self._pace_s)
            if len(producer) > MOST_UNACKNOWLEDGED:
                continue
            partition = self._partitions[number % len(self._partitions)]
            value = b"%s:%d %s" % (name.encode(), number, PADDING)
            self.history.record(Sent(name, partition, (value,)))
            producer.produce(partition.topic, value, partition=partition.partition, on_delivery=done)
        left = producer.flush(60)
        if left:
            self.failures.append(f"{name}: {left} records are neither acknowledged nor refused")

    def _consume(self, name: str) -> None:
        next_offsets = dict.fromkeys(self._partitions, 0)
        consumer = _consumer(self._bootstrap, self._partitions)
        try:
            while not self._stopping.is_set():
                polled: dict[TopicPartition, list[Record]] = {}
                for message in consumer.consume(1000, 0.1):
                    partition, record = _record(message)
                    polled.setdefault(partition, []).append(record)
                for partition, records in polled.items():
                    self.history.record(Polled(name, LIFE, partition, next_offsets[partition], tuple(records)))
                    next_offsets[partition] = records[-1][0] + 1
        finally:
            consumer.close()


def _client(bootstrap: str) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap, "log_level": 0, "error_cb": lambda _: None}


def _consumer(bootstrap: str, partitions: list[TopicPartition]) -> Consumer:
    """A reader that goes back to no other offset: one that the log does not have any more is an error."""
    choices = {"group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "error"}
    consumer = Consumer({**_client(bootstrap), **choices, "socket.timeout.ms": 3000})
    consumer.assign([Position(*partition, 0) for partition in partitions])
    return consumer


def _record(message: Message) -> tuple[TopicPartition, Record]:
    assert message.error() is None, message.error()
    return TopicPartition(message.topic(), message.partition()), (message.offset(), message.value())
