"""kafka-python: a blocking client in Python, by assignment, and the widest admin client of the Python ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ConfigResource,
    ConfigResourceType,
    OffsetSpec,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from kafka.errors import SecurityDisabledError, TopicAlreadyExistsError, UnknownTopicOrPartitionError

from tests import peers
from tests.peers import Broker

pytestmark = pytest.mark.usefixtures("forgotten_sockets")
CODECS = [None, "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def admin(broker: Broker) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=broker.address)) as client:
        yield client


def produce(address: str, topic: str, values: list[bytes], **settings: object) -> list[Any]:
    with closing(KafkaProducer(bootstrap_servers=address, **settings)) as producer:
        sent = [
            producer.send(topic, value, b"key", headers=[("n", b"%d" % i)], partition=0)
            for i, value in enumerate(values)
        ]
        return [answer.get(20) for answer in sent]


def consume(address: str, partition: TopicPartition, offset: int, count: int) -> list[Any]:
    with closing(KafkaConsumer(bootstrap_servers=address, group_id=None, consumer_timeout_ms=15_000)) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, offset)
        return [record for _, record in zip(range(count), consumer)]


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_whole(broker: Broker, new_topic: peers.NewTopic, codec: str | None) -> None:
    topic = new_topic()
    values = [b"%d " % i + b"abc" * 30 for i in range(200)]
    delivered = produce(broker.address, topic, values, compression_type=codec, linger_ms=20)

    records = consume(broker.address, TopicPartition(topic, 0), 0, 200)

    assert [answer.offset for answer in delivered] == list(range(200))
    assert [record.offset for record in records] == list(range(200))
    assert [record.value for record in records] == values
    assert [list(record.headers) for record in records] == [[("n", b"%d" % i)] for i in range(200)]


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_acknowledgement_is_served(broker: Broker, new_topic: peers.NewTopic, acks: int | str) -> None:
    topic = new_topic()
    produce(broker.address, topic, [b"a", b"b"], acks=acks, enable_idempotence=False)

    assert [record.value for record in consume(broker.address, TopicPartition(topic, 0), 0, 2)] == [b"a", b"b"]


def test_reading_starts_at_a_time(broker: Broker, new_topic: peers.NewTopic) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    now_ms = int(time.time() * 1000)
    with closing(KafkaProducer(bootstrap_servers=broker.address)) as producer:
        for i in range(5):
            producer.send(topic, b"%d" % i, partition=0, timestamp_ms=now_ms + 1000 * i).get(20)

    with closing(KafkaConsumer(bootstrap_servers=broker.address, group_id=None)) as consumer:
        found = consumer.offsets_for_times({partition: now_ms + 2500})[partition]
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 5}

    assert (found.offset, found.timestamp) == (3, now_ms + 3000)
    assert [record.value for record in consume(broker.address, partition, found.offset, 2)] == [b"3", b"4"]


def test_topics_are_created_grown_described_and_deleted(admin: KafkaAdminClient, topic_name: str) -> None:
    options = {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "777"}}
    [created] = admin.create_topics({topic_name: options}, wait_for_metadata=True)["topics"]
    assert (created["num_partitions"], created["replication_factor"]) == (2, 1)
    assert created["configs"]["retention.ms"]["value"] == "777"
    assert created["configs"]["retention.ms"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([topic_name])

    admin.create_partitions({topic_name: 3})
    assert topic_name in admin.list_topics()
    admin.wait_for_topics([topic_name])
    [described] = admin.describe_topics([topic_name])
    [[detailed], cursor] = [admin.describe_topic_partitions([topic_name])[key] for key in ("topics", "next_cursor")]
    assert described["topic_id"] == str(detailed["topic_id"]) == created["topic_id"]
    for partitions in (described["partitions"], detailed["partitions"]):
        assert [(p["partition_index"], p["leader_epoch"]) for p in partitions] == [(0, 0), (1, 0), (2, 0)]
        assert all([p["leader_id"]] == p["replica_nodes"] == p["isr_nodes"] for p in partitions)
    assert cursor is None

    admin.delete_topics([topic_name])
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic_name])


def test_a_manual_assignment_is_kept(admin: KafkaAdminClient, topic_name: str) -> None:
    [node] = admin.describe_cluster()["brokers"]
    admin.create_topics(
        {topic_name: {"assignments": {0: [node["broker_id"]], 1: [node["broker_id"]]}}}, wait_for_metadata=True
    )

    [described] = admin.describe_topics([topic_name])

    assert [p["replica_nodes"] for p in described["partitions"]] == [[node["broker_id"]]] * 2


def test_configs_are_altered_and_reset(admin: KafkaAdminClient, new_topic: peers.NewTopic) -> None:
    topic = new_topic()

    def modified() -> dict[str, str]:
        answer = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], include_synonyms=True)
        return {name: entry["value"] for name, entry in answer["topic"][topic].items() if "DYNAMIC_TOPIC" in str(entry)}

    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "888"})])
    peers.eventually(modified, {"retention.ms": "888"})
    admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, topic, ["retention.ms"])])
    peers.eventually(modified, dict[str, str]())
    assert topic in admin.list_config_resources()["topic"]


def test_acl_calls_report_that_security_is_disabled(admin: KafkaAdminClient) -> None:
    anything = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
    every = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, anything)
    topic = ResourcePattern(ResourceType.TOPIC, "t", ACLResourcePatternType.LITERAL)
    rule = ACL("User:a", "*", ACLOperation.READ, ACLPermissionType.ALLOW, topic)
    with pytest.raises(SecurityDisabledError, match="No Authorizer is configured on the broker"):
        admin.describe_acls(every)
    assert admin.create_acls([rule]) == {"succeeded": [], "failed": [SecurityDisabledError]}
    assert admin.delete_acls([every]) == [(every, [], SecurityDisabledError)]


def test_offsets_records_and_log_directories_are_told(
    broker: Broker, admin: KafkaAdminClient, new_topic: peers.NewTopic
) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    produce(broker.address, topic, [b"x" * 100] * 4)

    def offset(spec: OffsetSpec) -> int:
        found: int = admin.list_partition_offsets({partition: spec})[partition].offset
        return found

    assert (offset(OffsetSpec.EARLIEST), offset(OffsetSpec.LATEST)) == (0, 4)
    assert admin.delete_records({partition: 3})[partition]["low_watermark"] == 3
    assert (offset(OffsetSpec.EARLIEST), offset(OffsetSpec.LATEST)) == (3, 4)

    [node] = admin.describe_log_dirs()
    sizes = {
        (entry["name"], p["partition_index"]): p["partition_size"]
        for directory in node["log_dirs"]
        for entry in directory["topics"]
        for p in entry["partitions"]
    }
    assert sizes[(topic, 0)] > 4 * 100


def test_the_state_of_producers_is_told(broker: Broker, admin: KafkaAdminClient, new_topic: peers.NewTopic) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    produce(broker.address, topic, [b"x"] * 4, enable_idempotence=True)

    [state] = admin.describe_producers([partition])[partition].active_producers

    assert (state.producer_epoch, state.last_sequence) == (0, 3)
    assert state.current_transaction_start_offset == -1


def test_the_cluster_is_described(broker: Broker, admin: KafkaAdminClient) -> None:
    described = admin.describe_cluster()

    [node] = described["brokers"]
    assert f"{node['host']}:{node['port']}" == broker.address
    assert described["controller_id"] == node["broker_id"]
    assert len(described["cluster_id"]) == 22
