"""confluent-kafka (a current librdkafka): produce, consume by assignment, and every admin call it has for topics."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from tests import peers
from tests.peers import Broker, eventually

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def address(broker: Broker) -> str:
    return broker.address


@pytest.fixture
def admin(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address})


def produce(address: str, topic: str, values: list[bytes], partition: int = 0, **settings: object) -> list[Message]:
    """Produce to the end, and give what was delivered, in the order of delivery."""
    delivered: list[Message] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        delivered.append(message)

    producer = Producer({"bootstrap.servers": address, **{k.replace("_", "."): v for k, v in settings.items()}})
    for i, value in enumerate(values):
        producer.produce(topic, value, f"key {i}", partition, on_delivery, headers=[("n", str(i).encode())])
    assert producer.flush(30) == 0
    return delivered


def consume(address: str, start: TopicPartition, count: int, **settings: object) -> list[Message]:
    """Exactly `count` messages from a partition, or as many as come within 20 s."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "unused",
            "enable.auto.commit": False,
            **{k.replace("_", "."): v for k, v in settings.items()},
        }
    )
    try:
        consumer.assign([start])
        messages: list[Message] = []
        deadline = time.monotonic() + 20
        while len(messages) < count and time.monotonic() < deadline:
            messages += consumer.consume(count - len(messages), 0.2)
        for message in messages:
            assert message.error() is None, message.error()
        return messages
    finally:
        consumer.close()


def test_a_producer_may_not_write_to_the_offsets_topic(address: str, admin: AdminClient) -> None:
    unused = ConsumerGroupTopicPartitions("any", [TopicPartition("any", 0)])
    eventually(lambda: admin.list_consumer_group_offsets([unused])["any"].result(20) is not None, True)
    codes: list[int] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        codes.append(error.code() if error else KafkaError.NO_ERROR)

    producer = Producer({"bootstrap.servers": address, "topic.metadata.refresh.interval.ms": 100})
    producer.produce("__consumer_offsets", b"value", b"key", 0, on_delivery)
    assert producer.flush(30) == 0
    assert codes == [KafkaError.TOPIC_EXCEPTION]


def test_only_records_without_key_are_blamed_on_a_compacted_topic(address: str, new_topic: peers.NewTopic) -> None:
    topic = new_topic(config={"cleanup.policy": "compact"})
    codes: dict[bytes | str | None, int] = {}

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        assert error is not None
        codes[message.value()] = error.code()

    producer = Producer({"bootstrap.servers": address, "linger.ms": 500, "retries": 0})
    for value, key in ((b"0", b"key"), (b"1", None), (b"2", b"key"), (b"3", None)):
        producer.produce(topic, value, key, 0, on_delivery)
    assert producer.flush(30) == 0
    other, blamed = KafkaError._INVALID_DIFFERENT_RECORD, KafkaError.INVALID_RECORD
    assert codes == {b"0": other, b"1": blamed, b"2": other, b"3": blamed}


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_whole(address: str, new_topic: peers.NewTopic, codec: str, acks: str) -> None:
    topic = new_topic()
    values = [b"%d " % i + b"xyz" * 40 for i in range(300)]
    delivered = produce(address, topic, values, compression_type=codec, acks=acks, linger_ms=50)

    messages = consume(address, TopicPartition(topic, 0, 0), 300)

    assert [m.offset() for m in messages] == list(range(300))
    assert [m.value() for m in messages] == values
    assert [m.key() for m in messages] == [b"key %d" % i for i in range(300)]
    assert [m.headers() for m in messages] == [[("n", b"%d" % i)] for i in range(300)]
    assert [m.timestamp() for m in messages] == [m.timestamp() for m in delivered]
    if acks != "0":
        assert [m.offset() for m in delivered] == list(range(300))


def test_an_idempotent_producer_keeps_order_with_five_batches_in_flight(
    address: str, new_topic: peers.NewTopic
) -> None:
    topic = new_topic()
    values = [b"%d" % i for i in range(5000)]
    delivered = produce(address, topic, values, enable_idempotence=True, batch_num_messages=50, max_in_flight=5)

    assert [m.offset() for m in delivered] == list(range(5000))
    assert [m.value() for m in consume(address, TopicPartition(topic, 0, 0), 5000)] == values


def test_a_record_over_the_topics_limit_is_refused_and_the_next_one_is_not(
    address: str, new_topic: peers.NewTopic
) -> None:
    topic = new_topic(config={"max.message.bytes": "2000"})
    errors: list[int | None] = []
    producer = Producer({"bootstrap.servers": address})
    for value in (b"x" * 5000, b"small"):
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error and error.code()))
        assert producer.flush(30) == 0

    assert errors == [KafkaError.MSG_SIZE_TOO_LARGE, None]


def test_producing_to_an_unknown_partition_is_an_error(address: str, new_topic: peers.NewTopic) -> None:
    topic = new_topic(partitions=2)
    errors: list[int] = []
    producer = Producer({"bootstrap.servers": address, "message.timeout.ms": 5000})
    producer.produce(topic, b"x", partition=7, on_delivery=lambda error, _: errors.append(error.code()))
    assert producer.flush(10) == 0

    assert errors == [KafkaError._UNKNOWN_PARTITION]


def test_log_append_time_is_the_brokers(address: str, new_topic: peers.NewTopic) -> None:
    topic = new_topic(config={"message.timestamp.type": "LogAppendTime"})
    producer = Producer({"bootstrap.servers": address})
    before_ms = int(time.time() * 1000)
    producer.produce(topic, b"x", timestamp=1_000)
    assert producer.flush(30) == 0

    [message] = consume(address, TopicPartition(topic, 0, 0), 1)

    kind, timestamp_ms = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert before_ms <= timestamp_ms <= int(time.time() * 1000)


def test_offsets_are_found_by_time(address: str, new_topic: peers.NewTopic) -> None:
    topic = new_topic()
    now_ms = int(time.time() * 1000)
    producer = Producer({"bootstrap.servers": address})
    for i in range(10):
        producer.produce(topic, b"%d" % i, timestamp=now_ms + 1000 * i)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused"})
    try:
        asked = [TopicPartition(topic, 0, now_ms + 3500)]
        assert [found.offset for found in consumer.offsets_for_times(asked, 10)] == [4]
        asked = [TopicPartition(topic, 0, now_ms + 60_000)]
        assert [found.offset for found in consumer.offsets_for_times(asked, 10)] == [-1]  # past the end
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), 10) == (0, 10)
    finally:
        consumer.close()


def test_a_long_poll_is_woken_by_a_new_record(address: str, new_topic: peers.NewTopic) -> None:
    topic = new_topic()
    settings = {"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({**settings, "fetch.wait.max.ms": 10_000})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert consumer.poll(1.0) is None
        produced_at = time.monotonic()
        produce(address, topic, [b"wake up"])
        message = consumer.poll(8)
        assert message is not None
        assert message.value() == b"wake up"
        assert time.monotonic() - produced_at < 5
    finally:
        consumer.close()


def test_an_offset_out_of_range_is_reset(address: str, new_topic: peers.NewTopic) -> None:
    topic = new_topic()
    produce(address, topic, [b"0", b"1"])

    [message] = consume(address, TopicPartition(topic, 0, 1_000), 1, auto_offset_reset="earliest")

    assert message.value() == b"0"


def test_topics_are_created_described_and_deleted(admin: AdminClient, topic_name: str) -> None:
    admin.create_topics([NewTopic(topic_name, 3, 1, config={"retention.ms": "12345"})])[topic_name].result(20)
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(topic_name, 3, 1)])[topic_name].result(20)
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS

    eventually(lambda: topic_name in admin.list_topics(timeout=20).topics, True)
    description = admin.describe_topics(TopicCollection([topic_name]))[topic_name].result(20)
    assert [p.id for p in description.partitions] == [0, 1, 2]
    assert all(p.leader is not None and len(p.replicas) == len(p.isr) == 1 for p in description.partitions)
    assert not description.is_internal

    admin.delete_topics([topic_name])[topic_name].result(20)
    eventually(lambda: topic_name in admin.list_topics(timeout=20).topics, False)
    with pytest.raises(KafkaException) as refused:
        admin.delete_topics([topic_name])[topic_name].result(20)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("a/b", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("refused", 0, 1), KafkaError.INVALID_PARTITIONS),
        (NewTopic("refused", 1, 9), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("refused", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
        (NewTopic("refused", 1, 1, config={"no.such.key": "1"}), KafkaError.INVALID_CONFIG),
    ],
)
def test_a_wrong_topic_is_refused_with_its_own_code(admin: AdminClient, topic: NewTopic, code: int) -> None:
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([topic])[topic.topic].result(20)

    assert refused.value.args[0].code() == code
    assert topic.topic not in admin.list_topics(timeout=20).topics


def test_validate_only_creates_nothing(admin: AdminClient, topic_name: str) -> None:
    admin.create_topics([NewTopic(topic_name, 1, 1)], validate_only=True)[topic_name].result(20)

    assert topic_name not in admin.list_topics(timeout=20).topics


def test_partitions_are_added_but_never_taken_away(admin: AdminClient, new_topic: peers.NewTopic) -> None:
    topic = new_topic(partitions=2)

    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(20)

    eventually(lambda: sorted(admin.list_topics(topic, timeout=20).topics[topic].partitions), [0, 1, 2, 3])
    with pytest.raises(KafkaException) as refused:
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(20)
    assert refused.value.args[0].code() == KafkaError.INVALID_PARTITIONS


def described(admin: AdminClient, topic: str) -> dict[str, Any]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    entries: dict[str, Any] = admin.describe_configs([resource])[resource].result(20)
    return entries


def test_topic_configs_are_described_with_their_source(admin: AdminClient, new_topic: peers.NewTopic) -> None:
    topic = new_topic(config={"retention.ms": "54321"})

    entries = described(admin, topic)

    assert entries["retention.ms"].value == "54321"
    assert entries["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert entries["segment.bytes"].value == str(1 << 30)
    assert entries["segment.bytes"].source == ConfigSource.DEFAULT_CONFIG.value
    assert entries["cleanup.policy"].value == "delete"
    assert list(entries["segment.bytes"].synonyms) == ["log.segment.bytes"]


def test_configs_change_by_increments_and_as_a_whole(admin: AdminClient, new_topic: peers.NewTopic) -> None:
    topic = new_topic(config={"retention.ms": "1000", "segment.bytes": "2000000"})

    def change(name: str, value: str | None, operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(20)

    change("retention.ms", "9000", AlterConfigOpType.SET)
    change("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    entries = described(admin, topic)
    assert entries["retention.ms"].value == "9000"
    assert entries["segment.bytes"].value == "2000000"
    assert set(entries["cleanup.policy"].value.split(",")) == {"delete", "compact"}

    change("cleanup.policy", "compact", AlterConfigOpType.SUBTRACT)
    change("segment.bytes", None, AlterConfigOpType.DELETE)
    entries = described(admin, topic)
    assert entries["cleanup.policy"].value == "delete"
    assert entries["segment.bytes"].value == str(1 << 30)

    whole = ConfigResource(ConfigResource.Type.TOPIC, topic, set_config={"max.message.bytes": "5000"})
    with pytest.warns(DeprecationWarning, match="incremental_alter_configs"):
        admin.alter_configs([whole])[whole].result(20)
    entries = described(admin, topic)
    assert entries["max.message.bytes"].value == "5000"
    assert entries["retention.ms"].source == ConfigSource.DEFAULT_CONFIG.value

    with pytest.raises(KafkaException) as refused:
        change("retention.ms", "soon", AlterConfigOpType.SET)
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG


def test_a_changed_limit_holds_at_once(address: str, admin: AdminClient, new_topic: peers.NewTopic) -> None:
    topic = new_topic()
    produce(address, topic, [b"x" * 5000])
    entry = ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(20)

    errors: list[int | None] = []
    producer = Producer({"bootstrap.servers": address})
    producer.produce(topic, b"x" * 5000, on_delivery=lambda error, _: errors.append(error and error.code()))
    assert producer.flush(30) == 0

    assert errors == [KafkaError.MSG_SIZE_TOO_LARGE]


def test_broker_configs_are_described(admin: AdminClient) -> None:
    [node_id] = admin.list_topics(timeout=20).brokers
    resource = ConfigResource(ConfigResource.Type.BROKER, str(node_id))

    entries = admin.describe_configs([resource])[resource].result(20)

    assert entries["log.segment.bytes"].value == str(1 << 30)
    assert "log.dirs" in entries


def test_deleted_records_move_the_low_watermark(address: str, admin: AdminClient, new_topic: peers.NewTopic) -> None:
    topic = new_topic()
    produce(address, topic, [b"%d" % i for i in range(10)])
    partition = TopicPartition(topic, 0, 6)

    assert admin.delete_records([partition])[partition].result(20).low_watermark == 6

    messages = consume(address, TopicPartition(topic, 0, 0), 4, auto_offset_reset="earliest")
    assert [m.offset() for m in messages] == [6, 7, 8, 9]
    beyond = TopicPartition(topic, 0, 11)
    with pytest.raises(KafkaException) as refused:
        admin.delete_records([beyond])[beyond].result(20)
    assert refused.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("isolation", [IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED])
def test_offsets_are_listed_by_every_kind_of_question(
    address: str, admin: AdminClient, new_topic: peers.NewTopic, isolation: IsolationLevel
) -> None:
    topic = new_topic()
    now_ms = int(time.time() * 1000)
    producer = Producer({"bootstrap.servers": address})
    for timestamp_ms in (now_ms, now_ms + 5000, now_ms + 2000):
        producer.produce(topic, b"x", timestamp=timestamp_ms)
    assert producer.flush(30) == 0
    partition = TopicPartition(topic, 0)

    def ask(spec: OffsetSpec) -> tuple[int, int]:
        [answer] = admin.list_offsets({partition: spec}, isolation_level=isolation).values()
        found = answer.result(20)
        return found.offset, found.timestamp

    assert ask(OffsetSpec.earliest())[0] == 0
    assert ask(OffsetSpec.latest())[0] == 3
    assert ask(OffsetSpec.max_timestamp()) == (1, now_ms + 5000)
    assert ask(OffsetSpec.for_timestamp(now_ms + 1)) == (1, now_ms + 5000)


def test_the_cluster_is_described(admin: AdminClient, address: str) -> None:
    description = admin.describe_cluster().result(20)

    assert len(description.cluster_id) == 22
    [node] = description.nodes
    assert f"{node.host}:{node.port}" == address
    assert description.controller is not None
    assert description.controller.id == node.id


def test_acl_calls_report_that_security_is_disabled(admin: AdminClient) -> None:
    rule = AclBinding(
        ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermissionType.ALLOW
    )
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    assert admin.describe_acls(every).result(20) == []  # librdkafka hides the error, but needs the API
    for call in (*admin.create_acls([rule]).values(), *admin.delete_acls([every]).values()):
        with pytest.raises(KafkaException) as refused:
            call.result(20)
        assert refused.value.args[0].code() == KafkaError.SECURITY_DISABLED


@pytest.mark.parametrize(
    ("config", "replicas", "text"),
    [
        ({"retention.mss": "1"}, 1, "Unknown topic config name: retention.mss"),
        ({"retention.ms": "soon"}, 1, "Invalid value soon for configuration retention.ms: Not a number of type LONG"),
        ({}, 7, "Unable to replicate the partition 7 time(s): The target replication factor of 7 cannot be reached"),
    ],
)
def test_errors_of_topics_are_told_in_kafkas_words(
    admin: AdminClient, topic_name: str, config: dict[str, str], replicas: int, text: str
) -> None:
    created = admin.create_topics([NewTopic(topic_name, 1, replicas, config=config)])[topic_name]
    with pytest.raises(KafkaException) as refused:
        created.result(20)
    assert refused.value.args[0].str().startswith(text)


def test_min_insync_replicas_comes_from_the_cluster(admin: AdminClient, new_topic: peers.NewTopic) -> None:
    resource = ConfigResource(ConfigResource.Type.TOPIC, new_topic())
    entry = admin.describe_configs([resource])[resource].result(20)["min.insync.replicas"]
    assert (entry.value, entry.source) == ("1", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value)
    assert entry.is_default is False
