"""The bytes that consumers exchange through the classic protocol, against Apache Kafka's schemas and kafka-python."""

from __future__ import annotations

import json
import re
import zipfile

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment as TheirAssignment
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription as TheirSubscription

from barnabas.coordinator.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    subscribed_topics,
    version_of,
)
from barnabas.wire.primitives import DecodeError
from barnabas.wire.schema import Versions, schema_of
from tests import peers
from tests.unit.cluster.test_metadata_records import our_lines
from tests.wire_oracles.messages import versions
from tests.wire_oracles.test_wire_schemas import kafka_lines

SUBSCRIPTION = ConsumerProtocolSubscription(
    topics=["orders", "bills"],
    user_data=b"sticky",
    owned_partitions=[TopicPartition(topic="orders", partitions=[0, 3])],
    generation_id=7,
    rack_id="r1",
)
ASSIGNMENT = ConsumerProtocolAssignment(
    assigned_partitions=[TopicPartition(topic="orders", partitions=[1, 2])], user_data=b"mine"
)


@pytest.mark.parametrize("table", [ConsumerProtocolSubscription, ConsumerProtocolAssignment])
def test_every_field_of_every_version_is_kafkas(table: type) -> None:
    with zipfile.ZipFile(next(peers.kafka_jars().glob("kafka-clients-*.jar"))) as jar:
        text = jar.read(f"common/message/{table.__name__}.json").decode()
    theirs = json.loads(re.sub(r"(?m)^\s*//.*$", "", text))
    assert schema_of(table).versions == Versions.parse(theirs["validVersions"])
    for version in versions(table):
        assert our_lines(table, version) == kafka_lines(theirs["fields"], {}, version), f"version {version}"


@pytest.mark.parametrize("version", range(4))
def test_another_library_reads_what_is_written(version: int) -> None:
    theirs = TheirSubscription.decode(encode_subscription(SUBSCRIPTION, version))
    assert (theirs.topics, theirs.user_data) == (SUBSCRIPTION.topics, SUBSCRIPTION.user_data)
    if version >= 1:
        assert [(owned.topic, owned.partitions) for owned in theirs.owned_partitions] == [("orders", [0, 3])]
    assigned = TheirAssignment.decode(encode_assignment(ASSIGNMENT, version))
    assert [(part.topic, part.partitions) for part in assigned.assigned_partitions] == [("orders", [1, 2])]


@pytest.mark.parametrize("version", range(4))
def test_every_version_comes_back(version: int) -> None:
    subscription = decode_subscription(encode_subscription(SUBSCRIPTION, version))
    assert subscription.topics == SUBSCRIPTION.topics
    assert subscription.owned_partitions == (SUBSCRIPTION.owned_partitions if version >= 1 else [])
    assert subscription.generation_id == (7 if version >= 2 else -1)
    assert subscription.rack_id == ("r1" if version >= 3 else None)
    assert decode_assignment(encode_assignment(ASSIGNMENT, version)) == ASSIGNMENT


def test_a_version_from_the_future_is_read_as_the_newest_known() -> None:
    data = b"\0\x09" + encode_subscription(SUBSCRIPTION, 3)[2:] + b"and more"
    assert version_of(data) == 9
    assert decode_subscription(data) == SUBSCRIPTION
    assert subscribed_topics(data) == ["orders", "bills"]


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\1", b"\0\0\0\0\0\x05\0\1a"])
def test_what_is_no_subscription_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_subscription(data)
    with pytest.raises(DecodeError):
        subscribed_topics(data)
