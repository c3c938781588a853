"""CreateTopics, DeleteTopics, CreatePartitions, DescribeLogDirs, ListConfigResources: what there is on a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.k35_describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas.wire.messages.k37_create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.wire.messages.k74_list_config_resources import ListConfigResourcesRequest
from tests.broker.servers import ON_KAFKA, barnabas_only
from tests.broker.test_broker_metadata import BAD_NAMES
from tests.broker.wire_client import BROKER, TOPIC, Client, batch
from tests.peers import Broker, eventually

ZERO = bytes(16)
NODE = 1


def new_topic(
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    assignments: dict[int, list[int]] | None = None,
    **config: str | None,
) -> CreatableTopic:
    return CreatableTopic(
        name,
        partitions,
        replication_factor,
        [CreatableReplicaAssignment(index, brokers) for index, brokers in (assignments or {}).items()],
        [CreatableTopicConfig(key.replace("_", "."), value) for key, value in config.items()],
    )


def create(client: Client, *topics: CreatableTopic, validate_only: bool = False, version: int = 7) -> list[Any]:
    results: list[Any] = client.call(CreateTopicsRequest(list(topics), 10_000, validate_only), version).topics
    return results


def codes(results: list[Any]) -> dict[str, ErrorCode]:
    return {result.name: ErrorCode(result.error_code) for result in results}


def exists(client: Client, name: str) -> bool:
    return bool(client.describe_topic(name).error_code == ErrorCode.NONE)


# CreateTopics


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_creates_a_topic(client: Client, topic_name: str, version: int) -> None:
    (result,) = create(client, new_topic(topic_name, 3, retention_ms="1000"), version=version)
    assert (result.name, result.error_code, result.error_message) == (topic_name, ErrorCode.NONE, None)
    client.await_leaders(topic_name, 3)
    assert len(client.describe_topic(topic_name).partitions) == 3
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        told = {config.name: config for config in result.configs}
        assert (told["retention.ms"].value, told["retention.ms"].config_source) == ("1000", 1)
        assert (told["max.message.bytes"].value, told["max.message.bytes"].config_source) == ("1048588", 5)
        assert not any(config.is_sensitive or config.read_only for config in result.configs)
    assert result.topic_id == (client.topic_id(topic_name) if version >= 7 else ZERO)


def test_the_answer_comes_when_the_topic_can_be_used(client: Client, topic_name: str) -> None:
    create(client, new_topic(topic_name))
    if ON_KAFKA:
        client.await_leaders(topic_name, 1)
    assert client.produce(topic_name, batch()).error_code == ErrorCode.NONE


def test_minus_one_asks_for_the_defaults(client: Client, topic_name: str) -> None:
    (result,) = create(client, new_topic(topic_name, -1, -1))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (ErrorCode.NONE, 1, 1)


def test_a_manual_assignment(client: Client, topic_name: str) -> None:
    (result,) = create(client, new_topic(topic_name, -1, -1, {0: [NODE], 1: [NODE]}))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (ErrorCode.NONE, 2, 1)
    client.await_leaders(topic_name, 2)


BAD_TOPICS: dict[str, tuple[CreatableTopic, ErrorCode]] = {
    "no partitions": (new_topic("", 0), ErrorCode.INVALID_PARTITIONS),
    "negative partitions": (new_topic("", -2), ErrorCode.INVALID_PARTITIONS),
    "no replicas": (new_topic("", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
    "negative replicas": (new_topic("", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
    "more replicas than brokers": (new_topic("", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
    "count and assignment": (new_topic("", 1, -1, {0: [NODE]}), ErrorCode.INVALID_REQUEST),
    "factor and assignment": (new_topic("", -1, 1, {0: [NODE]}), ErrorCode.INVALID_REQUEST),
    "unknown broker": (new_topic("", -1, -1, {0: [99]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "broker named twice": (new_topic("", -1, -1, {0: [NODE, NODE]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "empty assignment": (new_topic("", -1, -1, {0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "gap in partitions": (new_topic("", -1, -1, {0: [NODE], 2: [NODE]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "unequal assignments": (new_topic("", -1, -1, {0: [NODE], 1: [NODE, 2]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "unknown key": (new_topic("", retention_mss="1"), ErrorCode.INVALID_CONFIG),
    "value of another type": (new_topic("", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
    "value out of range": (new_topic("", retention_ms="-7"), ErrorCode.INVALID_CONFIG),
    "unknown choice": (new_topic("", compression_type="brotli"), ErrorCode.INVALID_CONFIG),
    "null value": (new_topic("", retention_ms=None), ErrorCode.INVALID_CONFIG),
}


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize("fault", BAD_TOPICS)
def test_a_bad_topic_is_refused_with_its_reason(
    client: Client, topic_name: str, fault: str, validate_only: bool
) -> None:
    topic, code = BAD_TOPICS[fault]
    named = CreatableTopic(topic_name, topic.num_partitions, topic.replication_factor, topic.assignments, topic.configs)
    (result,) = create(client, named, validate_only=validate_only)
    assert (ErrorCode(result.error_code), result.topic_id) == (code, ZERO)
    assert result.error_message
    assert not exists(client, topic_name)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_bad_name_is_refused(client: Client, name: str) -> None:
    assert codes(create(client, new_topic(name))) == {name: ErrorCode.INVALID_TOPIC_EXCEPTION}


def test_a_topic_that_is_there_already(client: Client) -> None:
    topic = client.create_topic()
    assert codes(create(client, new_topic(topic))) == {topic: ErrorCode.TOPIC_ALREADY_EXISTS}


def test_names_that_differ_in_dots_and_underscores_collide(client: Client, topic_name: str) -> None:
    one, two = f"{topic_name}.x", f"{topic_name}_x"
    assert codes(create(client, new_topic(one))) == {one: ErrorCode.NONE}
    assert codes(create(client, new_topic(two))) == {two: ErrorCode.INVALID_TOPIC_EXCEPTION}


def test_a_name_twice_in_a_request_is_refused_and_the_others_are_made(client: Client, topic_name: str) -> None:
    other = topic_name + "-other"
    results = create(client, new_topic(topic_name), new_topic(other), new_topic(topic_name, 2))
    assert codes(results) == {topic_name: ErrorCode.INVALID_REQUEST, other: ErrorCode.NONE}
    assert not exists(client, topic_name)


def test_validation_alone_creates_nothing(client: Client, topic_name: str) -> None:
    (result,) = create(client, new_topic(topic_name, 2, retention_ms="5"), validate_only=True)
    assert (result.error_code, result.num_partitions) == (ErrorCode.NONE, 2)
    assert ON_KAFKA or result.topic_id == ZERO  # Kafka tells an id that no topic will ever have
    assert not exists(client, topic_name)
    assert codes(create(client, new_topic(topic_name))) == {topic_name: ErrorCode.NONE}


def test_topics_survive_a_restart_with_their_ids(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker()
    with Client(broker.address) as client:
        kept = client.create_topic(partitions=3, config={"retention.ms": "86400000"})
        gone = client.create_topic()
        topic_id = client.topic_id(kept)
        client.delete_topic(gone)
    broker.kill()
    with Client(start_broker().address) as client:
        client.await_leaders(kept, 3)
        assert client.topic_id(kept) == topic_id
        assert not exists(client, gone)


# DeleteTopics


@pytest.mark.parametrize("version", range(1, 7))
def test_every_version_deletes_by_name(client: Client, topic_name: str, version: int) -> None:
    topic = client.create_topic()
    topic_id = client.topic_id(topic)
    names = [topic, topic_name]
    states = [DeleteTopicState(name) for name in names]
    results = client.call(DeleteTopicsRequest(states, names, 10_000), version).responses
    assert codes(results) == {topic: ErrorCode.NONE, topic_name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    if version >= 6:
        assert {result.name: result.topic_id for result in results} == {topic: topic_id, topic_name: ZERO}
    eventually(lambda: exists(client, topic), False)
    eventually(lambda: client.produce(topic, batch()).error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def delete(client: Client, *states: DeleteTopicState) -> list[Any]:
    results: list[Any] = client.call(DeleteTopicsRequest(list(states), [], 10_000), 6).responses
    return results


def test_topics_are_deleted_by_id(client: Client) -> None:
    topic = client.create_topic()
    topic_id = client.topic_id(topic)
    results = delete(client, DeleteTopicState(None, topic_id), DeleteTopicState(None, b"\2" * 16))
    told = {result.topic_id: (ErrorCode(result.error_code), result.name) for result in results}
    assert told == {topic_id: (ErrorCode.NONE, topic), b"\2" * 16: (ErrorCode.UNKNOWN_TOPIC_ID, None)}
    eventually(lambda: exists(client, topic), False)


def test_a_topic_is_named_in_one_way(client: Client) -> None:
    topic = client.create_topic()
    topic_id = client.topic_id(topic)
    (both,) = delete(client, DeleteTopicState(topic, topic_id))
    assert both.error_code == ErrorCode.INVALID_REQUEST
    (neither,) = delete(client, DeleteTopicState(None, ZERO))
    assert neither.error_code == ErrorCode.INVALID_REQUEST
    assert {result.error_code for result in delete(client, DeleteTopicState(topic), DeleteTopicState(topic))} == {
        ErrorCode.INVALID_REQUEST
    }
    assert exists(client, topic)


def test_deletion_can_be_switched_off(start_broker: Callable[..., Broker]) -> None:
    with Client(start_broker({"delete.topic.enable": "false"}).address) as client:
        topic = client.create_topic()
        (result,) = delete(client, DeleteTopicState(topic))
        assert result.error_code == ErrorCode.TOPIC_DELETION_DISABLED
        assert exists(client, topic)


def test_a_deleted_topics_directory_goes(client: Client, broker: Broker) -> None:
    topic = client.create_topic(config={"file.delete.delay.ms": "0"})
    client.produce(topic, batch())
    assert os.path.isdir(broker.data_dir / f"{topic}-0")
    client.delete_topic(topic)
    if not ON_KAFKA:  # which waits for a minute
        eventually(lambda: any(broker.data_dir.glob(f"{topic}*")), False)


# CreatePartitions


def extend(client: Client, *topics: CreatePartitionsTopic, validate_only: bool = False, version: int = 3) -> list[Any]:
    results: list[Any] = client.call(CreatePartitionsRequest(list(topics), 10_000, validate_only), version).results
    return results


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added(client: Client, version: int) -> None:
    topic = client.create_topic()
    client.produce(topic, batch(b"kept"))
    (result,) = extend(client, CreatePartitionsTopic(topic, 3, None), version=version)
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
    client.await_leaders(topic, 3)
    assert client.produce(topic, batch(), 2).base_offset == 0
    assert [record.value for record in client.read_all(topic)] == [b"kept"]


@pytest.mark.parametrize("count", [2, 1, 0, -1])
def test_partitions_cannot_be_taken_away(client: Client, count: int) -> None:
    topic = client.create_topic(partitions=2)
    (result,) = extend(client, CreatePartitionsTopic(topic, count, None))
    assert result.error_code == ErrorCode.INVALID_PARTITIONS
    if not ON_KAFKA and count == 1:
        assert result.error_message == f"The topic {topic} currently has 2 partition(s); 1 would not be an increase."


def test_partitions_with_an_assignment(client: Client) -> None:
    topic = client.create_topic()
    assigned = [CreatePartitionsAssignment([NODE]), CreatePartitionsAssignment([NODE])]
    for count, assignments, code in (
        (3, assigned[:1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [CreatePartitionsAssignment([99])] * 2, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [CreatePartitionsAssignment([])] * 2, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, assigned, ErrorCode.NONE),
    ):
        (result,) = extend(client, CreatePartitionsTopic(topic, count, assignments))
        assert ErrorCode(result.error_code) == code
    client.await_leaders(topic, 3)


def test_partitions_of_unknown_topics_and_of_one_named_twice(client: Client, topic_name: str) -> None:
    topic = client.create_topic()
    (result,) = extend(client, CreatePartitionsTopic(topic_name, 3, None))
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    twice = [CreatePartitionsTopic(topic, count, None) for count in (2, 3)]
    assert {result.error_code for result in extend(client, *twice)} == {ErrorCode.INVALID_REQUEST}


def test_validation_alone_adds_no_partitions(client: Client) -> None:
    topic = client.create_topic()
    (result,) = extend(client, CreatePartitionsTopic(topic, 3, None), validate_only=True)
    assert result.error_code == ErrorCode.NONE
    assert len(client.describe_topic(topic).partitions) == 1


# DescribeLogDirs


@pytest.mark.parametrize("version", range(1, 6))
def test_log_directories_and_their_partitions(client: Client, broker: Broker, version: int) -> None:
    topic = client.create_topic(partitions=2)
    records = batch(b"x" * 5000)
    client.produce(topic, records, 1)
    asked = [DescribableLogDirTopic(topic, [0, 1, 7])]
    (directory,) = client.call(DescribeLogDirsRequest(asked), version).results
    assert (directory.error_code, directory.log_dir) == (ErrorCode.NONE, str(broker.data_dir))
    (told,) = directory.topics
    sizes = {partition.partition_index: partition.partition_size for partition in told.partitions}
    assert (told.name, sizes) == (topic, {0: 0, 1: len(records)})
    assert not any(partition.offset_lag or partition.is_future_key for partition in told.partitions)
    if version >= 4:
        assert 0 < directory.usable_bytes <= directory.total_bytes


def test_null_means_all_partitions(client: Client) -> None:
    topic = client.create_topic()
    (directory,) = client.call(DescribeLogDirsRequest(None)).results
    assert topic in {told.name for told in directory.topics}
    (directory,) = client.call(DescribeLogDirsRequest([])).results
    assert directory.topics == []


# ListConfigResources


def test_what_can_be_configured(client: Client) -> None:
    topic = client.create_topic()
    listed = client.call(ListConfigResourcesRequest([TOPIC, BROKER]), 1)
    assert listed.error_code == ErrorCode.NONE
    found = {(resource.resource_type, resource.resource_name) for resource in listed.config_resources}
    assert {(TOPIC, topic), (BROKER, str(NODE))} <= found
    everything = client.call(ListConfigResourcesRequest([]), 1).config_resources
    assert found <= {(resource.resource_type, resource.resource_name) for resource in everything}
    assert client.call(ListConfigResourcesRequest([99]), 1).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert client.call(ListConfigResourcesRequest(), 0).config_resources == []


@barnabas_only("the name of a directory is the broker's affair")
def test_directories_are_named_as_kafka_names_them(client: Client, broker: Broker) -> None:
    topic = client.create_topic()
    directory = broker.data_dir / f"{topic}-0"
    client.produce(topic, batch())
    assert {"00000000000000000000.log", "partition.metadata"} <= set(os.listdir(directory))
