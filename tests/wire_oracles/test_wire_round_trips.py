"""Any message of any version comes back as it was, and other libraries read and write the same bytes."""

from __future__ import annotations

import io
import uuid as uuids
from collections.abc import Sequence
from functools import partial
from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
import kio.index
import kio.schema.errors
import pytest
from kio.serial import entity_reader, entity_writer

from barnabas.wire.compiler import codec
from barnabas.wire.schema import ZERO_UUID, Field, int16, int32, int64, schema_of, table_of
from tests.wire_oracles.messages import MESSAGES, for_all, full, versions

KAFKA_PYTHON_MODULES = (
    kafka.protocol.admin,
    kafka.protocol.consumer,
    kafka.protocol.metadata,
    kafka.protocol.producer,
    kafka.protocol.sasl,
)
UNKNOWN_TO_KAFKA_PYTHON = {
    "AddRaftVoter",
    "AllocateProducerIds",
    "AlterPartition",
    "AlterShareGroupOffsets",
    "BrokerHeartbeat",
    "BrokerRegistration",
    "ConsumerGroupDescribe",
    "ConsumerGroupHeartbeat",
    "CreateDelegationToken",
    "DeleteShareGroupOffsets",
    "DescribeDelegationToken",
    "DescribeShareGroupOffsets",
    "ExpireDelegationToken",
    "RemoveRaftVoter",
    "RenewDelegationToken",
    "ShareGroupDescribe",
    "StreamsGroupDescribe",
    "UnregisterBroker",
}


def encode(message: Any, version: int) -> bytes:
    return b"".join(codec(type(message), version).encode(message))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_a_message_survives_the_wire_in_every_version(message: type[Any]) -> None:
    for version in versions(message):
        check = partial(assert_round_trip, version)
        check(full(message, version))
        for_all(message, version, check)


def assert_round_trip(version: int, sent: Any) -> None:
    wire = encode(sent, version)
    assert codec(type(sent), version).decode(memoryview(wire)) == (sent, len(wire))


def kio_entity(message: type[Any], version: int) -> Any:
    schema = schema_of(message)
    load = kio.index.load_request_schema if schema.role == "request" else kio.index.load_response_schema
    return load(schema.key, version)


def what_kio_can_say(field: Field) -> Sequence[int] | None:
    """kio has enumerated error codes, and dates and durations for milliseconds."""
    if field.name.endswith("error_code") and field.kind is int16:
        return [code.value for code in kio.schema.errors.ErrorCode]
    if field.kind is int64 and ("timestamp" in field.name or field.name.endswith("_ms")):
        return range(2**40)
    if field.kind is int32 and field.name.endswith("_ms"):
        return range(-(2**20), 2**30)
    return None


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_kio_reads_and_writes_the_same_bytes(message: type[Any]) -> None:
    for version in versions(message):
        entity = kio_entity(message, version)
        for_all(message, version, partial(assert_kio_agrees, entity, version), what_kio_can_say)


def assert_kio_agrees(entity: Any, version: int, sent: Any) -> None:
    wire = encode(sent, version)
    theirs, size = entity_reader(entity)(wire, 0)
    again = io.BytesIO()
    entity_writer(entity)(again, theirs)
    assert (size, again.getvalue()) == (len(wire), wire)


def kafka_python_class(message: type[Any]) -> Any:
    found = (getattr(module, message.__name__, None) for module in KAFKA_PYTHON_MODULES)
    return next((cls for cls in found if cls is not None), None)


def assert_same(ours: Any, theirs: Any, version: int) -> None:
    """Compare by field name; kafka-python has objects of its own for uuids."""
    if isinstance(ours, list):
        assert len(ours) == len(theirs)
        for our_item, their_item in zip(ours, theirs):
            assert_same(our_item, their_item, version)
    elif hasattr(ours, "__table__"):
        for field in table_of(type(ours)):
            # kafka-python turns these bit sets into sets.
            if field.versions.has(version) and not field.name.endswith("authorized_operations"):
                assert_same(getattr(ours, field.name), getattr(theirs, field.name), version)
    elif isinstance(theirs, uuids.UUID):
        assert ours == theirs.bytes
    else:
        assert ours == theirs or (ours == ZERO_UUID and theirs is None)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_kafka_python_reads_the_same_values_and_writes_the_same_bytes(message: type[Any]) -> None:
    cls = kafka_python_class(message)
    if cls is None:
        assert message.__name__.removesuffix("Request").removesuffix("Response") in UNKNOWN_TO_KAFKA_PYTHON
        return

    def what_kafka_python_can_say(field: Field) -> Sequence[int] | None:
        # It takes an ApiVersionsResponse with an error for version 0, whatever was asked.
        in_error = message.__name__ == "ApiVersionsResponse" and field.name == "error_code"
        return [0] if in_error else None

    for version in versions(message):
        for_all(message, version, partial(assert_kafka_python_agrees, cls, version), what_kafka_python_can_say)


def assert_kafka_python_agrees(cls: Any, version: int, sent: Any) -> None:
    wire = encode(sent, version)
    theirs = cls.decode(wire, version=version)
    assert_same(sent, theirs, version)
    theirs._header = None  # its decoder leaves the slot empty, and some of its encoders ask for it
    assert bytes(theirs.encode(version=version)) == wire
