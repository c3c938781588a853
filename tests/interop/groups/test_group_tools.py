"""Apache Kafka's own tools for groups and transactions."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, ConsumerGroupState, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests import peers
from tests.interop.groups.members import SESSION_MS
from tests.peers import Broker, NewTopic, eventually

Tool = Callable[..., str]

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
RECORDS = 10
START_MS = 1_700_000_000_000


@pytest.fixture
def tool(broker: Broker) -> Tool:
    """Runs a tool against the broker."""

    def run(main_class: str, *arguments: str) -> str:
        return peers.kafka_tool(main_class, "--bootstrap-server", broker.address, *arguments)

    return run


@pytest.fixture
def group() -> str:
    """A name that no other test uses."""
    return f"g-{uuid.uuid4().hex[:12]}"


def table(output: str) -> list[dict[str, str]]:
    """The rows of what a tool printed, by the titles of their columns."""
    titles, *rows = [line.split() for line in output.splitlines() if line.strip()]
    return [dict(zip(titles, row)) for row in rows]


def fill(broker: Broker, topic: str) -> None:
    """Records in partition 0, one for each second of time."""
    producer = Producer({"bootstrap.servers": broker.address})
    for number in range(RECORDS):
        producer.produce(topic, str(number), partition=0, timestamp=START_MS + 1000 * number)
    assert producer.flush(20) == 0


def commit(broker: Broker, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def test_a_group_is_listed_described_and_deleted(tool: Tool, broker: Broker, new_topic: NewTopic, group: str) -> None:
    topic = new_topic()
    fill(broker, topic)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": group,
            "group.instance.id": "one",
            "client.id": "reader",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 500,
        }
    )
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)

    (listed,) = [row for row in table(tool(GROUPS, "--list", "--state")) if row["GROUP"] == group]
    assert listed["STATE"] == "Stable"
    (described,) = table(tool(GROUPS, "--describe", "--group", group))
    assert (described["TOPIC"], described["PARTITION"]) == (topic, "0")
    assert (described["CURRENT-OFFSET"], described["LOG-END-OFFSET"], described["LAG"]) == ("4", "10", "6")
    assert (described["CLIENT-ID"], described["HOST"]) == ("reader", "/127.0.0.1")
    (member,) = table(tool(GROUPS, "--describe", "--group", group, "--members", "--verbose"))
    assert (member["GROUP-INSTANCE-ID"], member["#PARTITIONS"]) == ("one", "1")
    assert member["CURRENT-ASSIGNMENT"] == f"{topic}:0"
    (state,) = table(tool(GROUPS, "--describe", "--group", group, "--state"))
    assert "Stable" in state.values()
    assert "GroupNotEmptyException" in tool(GROUPS, "--delete", "--group", group)

    consumer.close()  # a static member stays until its session ends
    admin = AdminClient({"bootstrap.servers": broker.address})
    eventually(lambda: admin.describe_consumer_groups([group])[group].result(10).state, ConsumerGroupState.EMPTY)
    assert "successful" in tool(GROUPS, "--delete", "--group", group)
    assert group not in tool(GROUPS, "--list").split()


def test_offsets_are_reset_by_offset_shift_and_time(
    tool: Tool, broker: Broker, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic()
    fill(broker, topic)
    commit(broker, group, topic, 5)

    def reset(*how: str) -> str:
        answer = tool(GROUPS, "--reset-offsets", "--group", group, "--topic", topic, *how)
        (row,) = table(answer)
        assert (row["GROUP"], row["TOPIC"], row["PARTITION"]) == (group, topic, "0")
        return row["NEW-OFFSET"]

    def current() -> int:
        consumer = Consumer({"bootstrap.servers": broker.address, "group.id": group})
        (found,) = consumer.committed([TopicPartition(topic, 0)], 10)
        consumer.close()
        offset: int = found.offset
        return offset

    assert reset("--to-offset", "7", "--dry-run") == "7"
    assert current() == 5
    assert reset("--to-offset", "7", "--execute") == "7"
    assert current() == 7
    assert reset("--shift-by", "-3", "--execute") == "4"
    assert current() == 4
    when = datetime.fromtimestamp(START_MS / 1000 + 5.5, UTC)
    assert reset("--to-datetime", when.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z", "--execute") == "6"
    assert current() == 6
    deleted = tool(GROUPS, "--delete-offsets", "--group", group, "--topic", topic)
    assert re.search(rf"{topic}\s+0\s+Successful", deleted)
    assert current() == OFFSET_INVALID


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_console_consumer_goes_on_where_its_group_was(
    tool: Tool, broker: Broker, new_topic: NewTopic, group: str, protocol: str
) -> None:
    topic = new_topic()
    fill(broker, topic)

    def consume(count: int) -> list[str]:
        bounds = ["--from-beginning", "--max-messages", str(count), "--timeout-ms", "20000"]
        settings = ["--command-property", f"group.protocol={protocol}"]
        *lines, summary = tool(CONSUMER, "--topic", topic, "--group", group, *bounds, *settings).splitlines()
        assert summary == f"Processed a total of {count} messages"
        return lines[-count:]  # the classic client begins with praise of the other protocol

    assert consume(4) == ["0", "1", "2", "3"]
    assert consume(6) == ["4", "5", "6", "7", "8", "9"]


def test_transactions_are_listed_described_and_aborted(tool: Tool, broker: Broker, new_topic: NewTopic) -> None:
    topic = new_topic()
    name = f"x-{uuid.uuid4().hex[:12]}"
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    assert producer.flush(20) == 0

    (listed,) = [row for row in table(tool(TRANSACTIONS, "list")) if row["TransactionalId"] == name]
    assert listed["TransactionState"] == "Ongoing"
    (described,) = table(tool(TRANSACTIONS, "describe", "--transactional-id", name))
    assert described["TransactionState"] == "Ongoing"
    assert f"{topic}-0" in described.values()
    (active,) = table(tool(TRANSACTIONS, "describe-producers", "--topic", topic, "--partition", "0"))
    assert (active["ProducerId"], active["CurrentTransactionStartOffset"]) == (listed["ProducerId"], "0")
    assert table(tool(TRANSACTIONS, "find-hanging", "--topic", topic, "--partition", "0")) == []

    tool(TRANSACTIONS, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    (idle,) = table(tool(TRANSACTIONS, "describe-producers", "--topic", topic, "--partition", "0"))
    assert idle["CurrentTransactionStartOffset"] == "None"
