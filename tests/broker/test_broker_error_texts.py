"""Error messages that programs look for: each begins with the words of Apache Kafka, and our own may follow."""

from __future__ import annotations

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages import k19_create_topics as create
from barnabas.wire.messages import k33_alter_configs as alter
from barnabas.wire.messages import k37_create_partitions as grow
from barnabas.wire.messages import k44_incremental_alter_configs as incremental
from tests.broker.servers import barnabas_only
from tests.broker.wire_client import TOPIC, Client

INVALID_CONFIGS = {
    ("no.such.key", "1"): "Unknown topic config name: no.such.key",
    ("retention.mss", "1"): "Unknown topic config name: retention.mss",
    ("retention.ms", "soon"): "Invalid value soon for configuration retention.ms: Not a number of type LONG",
    ("retention.ms", "-5"): "Invalid value -5 for configuration retention.ms: Value must be at least -1",
    (
        "segment.bytes",
        "99999999999",
    ): "Invalid value 99999999999 for configuration segment.bytes: Not a number of type INT",
    ("min.insync.replicas", "0"): "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1",
    ("cleanup.policy", "shred"): "Invalid value shred for configuration cleanup.policy: "
    "String must be one of: compact, delete",
    ("compression.type", "rar"): "Invalid value rar for configuration compression.type: "
    "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
    ("message.timestamp.type", "Never"): "Invalid value Never for configuration message.timestamp.type: "
    "String must be one of: CreateTime, LogAppendTime",
    ("unclean.leader.election.enable", "maybe"): "Invalid value maybe for configuration "
    "unclean.leader.election.enable: Expected value to be either true or false",
    ("min.cleanable.dirty.ratio", "2"): "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: "
    "Value must be no more than 1",
    ("compression.gzip.level", "77"): "Invalid value 77 for configuration compression.gzip.level: "
    "Value must be between 1 and 9 or equal to -1",
}


def created(client: Client, topic: create.CreatableTopic) -> tuple[ErrorCode, str]:
    """The error of a topic that is only validated."""
    (result,) = client.call(create.CreateTopicsRequest([topic], 10_000, True)).topics
    return ErrorCode(result.error_code), result.error_message or ""


@pytest.fixture
def topic(client: Client) -> str:
    return client.create_topic(3)


@pytest.mark.parametrize(("key", "value"), INVALID_CONFIGS)
def test_invalid_topic_configs(client: Client, topic: str, key: str, value: str) -> None:
    text = INVALID_CONFIGS[key, value]
    code, message = created(client, create.CreatableTopic("new", 1, 1, [], [create.CreatableTopicConfig(key, value)]))
    assert code is ErrorCode.INVALID_CONFIG
    assert message.startswith(text)
    changes = incremental.AlterConfigsResource(TOPIC, topic, [incremental.AlterableConfig(key, 0, value)])
    (changed,) = client.call(incremental.IncrementalAlterConfigsRequest([changes])).responses
    values = alter.AlterConfigsResource(TOPIC, topic, [alter.AlterableConfig(key, value)])
    (replaced,) = client.call(alter.AlterConfigsRequest([values])).responses
    for result in (changed, replaced):
        assert result.error_code == ErrorCode.INVALID_CONFIG
        assert result.error_message.startswith(text)


@pytest.mark.parametrize(
    ("name", "partitions", "replicas", "code", "text"),
    [
        ("t", 1, 3, ErrorCode.INVALID_REPLICATION_FACTOR, "Unable to replicate the partition 3 time(s): "
         "The target replication factor of 3 cannot be reached because only 1 broker(s) are registered"),
        ("t", 1, 0, ErrorCode.INVALID_REPLICATION_FACTOR,
         "Replication factor must be larger than 0, or -1 to use the default value."),
        ("t", 0, 1, ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."),
        ("", 1, 1, ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: the empty string is not allowed"),
        ("..", 1, 1, ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '..' is not allowed"),
        ("a b", 1, 1, ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: 'a b' contains one or more "
         "characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("x" * 250, 1, 1, ErrorCode.INVALID_TOPIC_EXCEPTION,
         f"Topic name is invalid: the length of '{'x' * 250}' is longer than the max allowed length 249"),
    ],
)  # fmt: skip
def test_topics_that_cannot_be_created(
    client: Client, name: str, partitions: int, replicas: int, code: ErrorCode, text: str
) -> None:
    told, message = created(client, create.CreatableTopic(name, partitions, replicas))
    assert told is code
    assert message.startswith(text)


def test_a_topic_that_exists(client: Client, topic: str) -> None:
    assert created(client, create.CreatableTopic(topic, 1, 1)) == (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        f"Topic '{topic}' already exists.",
    )


def test_a_topic_whose_name_collides(client: Client) -> None:
    topic = client.create_topic(name="collides.with.another")
    code, message = created(client, create.CreatableTopic("collides_with.another", 1, 1))
    assert code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert message.startswith(f"Topic 'collides_with.another' collides with existing topic: {topic}")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (3, "Topic already has 3 partition(s)."),
        (2, "The topic {topic} currently has 3 partition(s); 2 would not be an increase."),
        (-1, "The topic {topic} currently has 3 partition(s); -1 would not be an increase."),
    ],
)
def test_a_partition_count_that_is_no_increase(client: Client, topic: str, count: int, text: str) -> None:
    request = grow.CreatePartitionsRequest([grow.CreatePartitionsTopic(topic, count, None)], 10_000, False)
    (result,) = client.call(request).results
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_PARTITIONS, text.format(topic=topic))


def test_configs_of_a_topic_that_is_not_there(client: Client, topic_name: str) -> None:
    changes = incremental.AlterConfigsResource(TOPIC, topic_name, [incremental.AlterableConfig("retention.ms", 0, "1")])
    (result,) = client.call(incremental.IncrementalAlterConfigsRequest([changes])).responses
    assert (result.error_code, result.error_message) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"The topic '{topic_name}' does not exist.",
    )


@barnabas_only("Kafka says UNKNOWN_SERVER_ERROR")
@pytest.mark.parametrize(("key", "value"), [("k" * 32_767, "1"), ("retention.ms", "x" * 32_767)], ids=["key", "value"])
def test_the_longest_bad_config_gets_an_error_in_the_oldest_version(client: Client, key: str, value: str) -> None:
    wanted = create.CreatableTopic("new", 1, 1, [], [create.CreatableTopicConfig(key, value)])
    (result,) = client.call(create.CreateTopicsRequest([wanted], 10_000, True), 2).topics
    assert result.error_code == ErrorCode.INVALID_CONFIG
