"""What consumers tell each other inside the classic protocol: the bytes of a subscription and of an assignment.

    version (int16) | the table, in that version

The broker carries these bytes without a look, but for two ends: which topics a group is subscribed to, for the expiry
and deletion of offsets, and members that go over to or come back from KIP-848. A later version only adds fields at the
end, so that one from the future is read as the newest that is known, and what follows is left alone.
"""

from __future__ import annotations

from struct import Struct
from typing import TypeVar

from barnabas.wire.compiler import codec
from barnabas.wire.primitives import DecodeError
from barnabas.wire.schema import Buffer, array, bytes_, int32, schema, schema_of, string, struct

T = TypeVar("T")

PROTOCOL_TYPE = "consumer"

_VERSION = Struct(">h")


@struct
class TopicPartition:
    topic: str = string()
    partitions: list[int] = array(int32)


@schema(versions="0-3", flexible="none")
class ConsumerProtocolSubscription:
    """v1: what the member owns. v2: since which generation (KIP-792). v3: its rack (KIP-881)."""

    topics: list[str] = array(string)
    user_data: Buffer | None = bytes_(nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+")
    generation_id: int = int32("2+", default=-1)
    rack_id: str | None = string("3+", nullable="3+", default=None)


@schema(versions="0-3", flexible="none")
class ConsumerProtocolAssignment:
    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: Buffer | None = bytes_(nullable="0+", default=None)


def version_of(data: Buffer) -> int:
    """The version at the head of a subscription or assignment; DecodeError if there is none."""
    if len(data) < _VERSION.size:
        raise DecodeError(f"consumer protocol data of {len(data)} bytes has no version")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise DecodeError(f"consumer protocol data has version {version}")
    return version


def decode_subscription(data: Buffer) -> ConsumerProtocolSubscription:
    return _decode(ConsumerProtocolSubscription, data)


def decode_assignment(data: Buffer) -> ConsumerProtocolAssignment:
    return _decode(ConsumerProtocolAssignment, data)


def encode_subscription(subscription: ConsumerProtocolSubscription, version: int) -> bytes:
    return _encode(subscription, version)


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int) -> bytes:
    return _encode(assignment, version)


def subscribed_topics(data: Buffer) -> list[str]:
    """The topics of a subscription of whatever version: version 0 is a prefix of them all."""
    version_of(data)
    return codec(ConsumerProtocolSubscription, 0).decode(memoryview(data), _VERSION.size)[0].topics


def _decode(cls: type[T], data: Buffer) -> T:
    version = min(version_of(data), schema_of(cls).versions.highest)
    return codec(cls, version).decode(memoryview(data), _VERSION.size)[0]


def _encode(message: T, version: int) -> bytes:
    version = min(version, schema_of(type(message)).versions.highest)
    return b"".join((_VERSION.pack(version), *codec(type(message), version).encode(message)))
