"""Consume, transform, produce in transactions, while the client and the broker are killed in turn.

In the end a reader of committed records finds every record once and in order.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.groups.conftest import StartBroker
from tests.peers import Server

PARTITIONS = 3
RECORDS_PER_TRANSACTION = 750


class Size(NamedTuple):
    records: int
    kills: int


SIZES = [Size(20_000, 4), pytest.param(Size(100_000, 20), marks=pytest.mark.proof)]


class Transformer:
    """The client: it must not end by itself, and is started again when it was killed."""

    def __init__(self, address: str, directory: Path) -> None:
        self._progress, self._log = directory / "progress", directory / "transformer.log"
        self._progress.touch()
        arguments = [address, "transform", "source", "target", str(RECORDS_PER_TRANSACTION), str(self._progress)]
        self._command = [sys.executable, "-m", "tests.interop.clients.transformer", *arguments]
        self.server = self._start()

    def wait_for(self, records: int, timeout: float = 60) -> None:
        deadline = time.monotonic() + timeout
        while (done := self._progress.stat().st_size) < records:
            self.check()
            assert time.monotonic() < deadline, f"{done} of {records} records after {timeout} s:\n{self.server.tail()}"
            time.sleep(0.005)

    def check(self) -> None:
        ended = self.server.process.poll()
        assert ended is None, f"the client ended by itself with {ended}:\n{self.server.tail()}"

    def kill(self) -> None:
        self.server.kill()
        self.server = self._start()

    def _start(self) -> Server:
        return Server(self._command, self._log, self._log)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size.kills}-kills")
def test_transformed_records_are_neither_lost_nor_doubled_nor_out_of_order(
    start_broker: StartBroker, tmp_path: Path, size: Size
) -> None:
    broker = start_broker(tmp_path / "broker")
    address = broker.address
    moments = random.Random(7)
    client: Transformer | None = None
    try:
        fill(address, size.records)
        client = Transformer(address, tmp_path)
        for kill in range(1, size.kills + 1):
            client.wait_for(size.records * kill // (size.kills + 1))
            time.sleep(moments.uniform(0, 0.05))  # anywhere in a transaction
            if kill % 2:
                client.kill()
            else:
                broker.kill()
                broker = start_broker(tmp_path / "broker")
        results = read_committed(address, size.records, client)
        client.server.stop()
    finally:
        if client is not None:
            client.server.kill()
        broker.kill()

    for partition, values in results.items():
        count = len(range(partition, size.records, PARTITIONS))
        assert values == [f"done {number}" for number in range(count)], f"partition {partition}"


def fill(address: str, records: int) -> None:
    """Two topics, and numbers from 0 in every partition of the first."""
    admin = AdminClient({"bootstrap.servers": address})
    for topic, created in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in ("source", "target")]).items():
        assert created.result(20) is None, topic
    producer = Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 0,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    for record in range(records):
        producer.produce("source", str(record // PARTITIONS), partition=record % PARTITIONS)
    assert producer.flush(60) == 0


def read_committed(address: str, records: int, client: Transformer, timeout: float = 60) -> dict[int, list[str]]:
    """The values in each partition of the target, as soon as there are enough in all, and a second later."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition("target", partition, 0) for partition in range(PARTITIONS)])
    values: dict[int, list[str]] = {partition: [] for partition in range(PARTITIONS)}
    deadline = time.monotonic() + timeout
    settled = False
    while not settled:
        messages = consumer.consume(10_000, 1)
        for message in messages:
            assert message.error() is None, message.error()
            values[message.partition()].append((message.value() or b"").decode())
        count = sum(map(len, values.values()))
        settled = not messages and count >= records
        client.check()
        assert settled or time.monotonic() < deadline, f"only {count} of {records} records:\n{client.server.tail()}"
    consumer.close()
    return values
