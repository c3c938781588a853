"""A coordinator that FindCoordinator has named serves, however late its shard is: clients need not survive a refusal.

librdkafka's admin client does not: on NOT_COORDINATOR to OffsetFetch it ends its process with a segmentation fault. So
it runs in a child process here.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from tests.broker.wire_client import Client
from tests.peers import BarnabasServer, eventually

HELD_BROKER = Path(__file__).with_name("held_broker.py")
GROUP, TRANSACTION = 0, 1
TOPICS = {GROUP: "__consumer_offsets", TRANSACTION: "__transaction_state"}
SINGLE_KEY = 3  # the last version of FindCoordinator with one key

LIST_OFFSETS = """
import sys
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
admin = AdminClient({"bootstrap.servers": sys.argv[1]})
(listed,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("group")]).values()
print(listed.result(30).topic_partitions)
"""
BEGIN_TRANSACTIONS = """
import sys
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "transactional.id": "transaction"})
producer.init_transactions(30)
print("[]")
"""


@pytest.fixture(params=["create", "load"])
def held_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BarnabasServer]:
    settings = {"offsets.topic.num.partitions": "5", "transaction.state.log.num.partitions": "5"}
    wrapper = (sys.executable, str(HELD_BROKER), request.param)
    with BarnabasServer(tmp_path / "data", settings, wrapper=wrapper) as server:
        yield server


@pytest.mark.parametrize(
    ("key_type", "program"),
    [(GROUP, LIST_OFFSETS), (TRANSACTION, BEGIN_TRANSACTIONS)],
    ids=["group", "transaction"],
)
def test_librdkafka_is_served_by_a_coordinator_that_is_still_loading(
    held_broker: BarnabasServer, key_type: int, program: str
) -> None:
    with Client(held_broker.address) as first, Client(held_broker.address) as second:
        first.send(FindCoordinatorRequest("any", key_type), SINGLE_KEY)  # creates the topic, which is held back
        eventually(lambda: second.describe_topic(TOPICS[key_type]).error_code, ErrorCode.NONE)
        judge = subprocess.run(
            [sys.executable, "-c", program, held_broker.address],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
    assert (judge.returncode, judge.stdout.strip()) == (0, "[]")
