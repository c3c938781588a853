"""A topic that its leader learns of late loses none of the records of librdkafka's idempotent producer.

The second batch is under way when the first one is refused. Were it taken for the producer's first, librdkafka would
report the first as delivered, because the second was, and it would be nowhere.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from confluent_kafka import Message, Producer

from barnabas.sync import Admin
from tests.checker.history import TopicPartition
from tests.cluster.whole_logs import read_to_end
from tests.interop.late_broker import PARTITION
from tests.peers import BarnabasServer, eventually

TOPIC = "orders"
LATE_BROKER = Path(__file__).with_name("late_broker.py")


VALUES = [b"first", b"second", b"third"]


def test_no_record_is_lost_of_a_partition_that_the_leader_learns_of_late(tmp_path: Path) -> None:
    delivered: list[bytes | None] = []
    awaited = 0
    """Requests that librdkafka has sent, and that the broker has not answered."""

    def done(error: object, message: Message) -> None:
        assert error is None
        delivered.append(message.value())

    def count_awaited(statistics: str) -> None:
        nonlocal awaited
        awaited = sum(broker["waitresp_cnt"] for broker in json.loads(statistics)["brokers"].values())

    wrapper = (sys.executable, str(LATE_BROKER), TOPIC)
    with BarnabasServer(tmp_path / "data", wrapper=wrapper) as server, Admin(server.address) as admin:
        admin.topics.create(TOPIC, partitions=PARTITION + 1)
        producer = Producer(
            {
                "bootstrap.servers": server.address,
                "enable.idempotence": True,
                "batch.num.messages": 1,
                "statistics.interval.ms": 20,
                "stats_cb": count_awaited,
            }
        )
        producer.produce(TOPIC, b"known", partition=0, on_delivery=done)
        assert producer.flush(30) == 0
        os.kill(server.pid, signal.SIGSTOP)
        try:
            for value in VALUES:
                producer.produce(TOPIC, value, partition=PARTITION, on_delivery=done)
            eventually(lambda: producer.poll(0.01) is not None and awaited >= len(VALUES), True)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert producer.flush(30) == 0
        logs, _ = read_to_end(server.address, [TopicPartition(TOPIC, PARTITION)])
    assert sorted(filter(None, delivered)) == sorted([b"known", *VALUES])
    (records,) = logs.values()
    assert [value for _, value in records] == VALUES
