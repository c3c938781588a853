"""Records of the internal topics, to bytes and back: Kafka's own, with Kafka's types, versions and frames.

    key:    type (int16)    | the key's table       (keys have one version)
    value:  version (int16) | the value's table, in that version

A type means something else in each of the two topics, so there is a decoder for each. Every version is read. Written is
the one that Kafka 4.3 writes, which for a group's metadata is not the newest: a broker of before KIP-915 could not
read it.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Any, NamedTuple, TypeAlias

from barnabas.coordinator import group_records as g
from barnabas.coordinator import transaction_records as t
from barnabas.coordinator.outcome import CoordinatorRecord
from barnabas.wire.compiler import codec
from barnabas.wire.primitives import DecodeError

Key: TypeAlias = Any  # an instance of one of the tables of keys
Value: TypeAlias = Any  # an instance of the table of values that goes with it

_INT16 = Struct(">h")


class UnknownRecordType(DecodeError):
    """A key of a type that is not known here, such as those of share and streams groups: no damage, only news."""


class RecordType(NamedTuple):
    number: int
    key: type
    value: type
    written_version: int


GROUP_RECORD_TYPES = (
    RecordType(0, g.LegacyOffsetCommitKey, g.LegacyOffsetCommitValue, 0),
    RecordType(1, g.OffsetCommitKey, g.OffsetCommitValue, 4),
    RecordType(2, g.GroupMetadataKey, g.GroupMetadataValue, 3),
    RecordType(3, g.ConsumerGroupMetadataKey, g.ConsumerGroupMetadataValue, 0),
    RecordType(4, g.ConsumerGroupPartitionMetadataKey, g.ConsumerGroupPartitionMetadataValue, 0),
    RecordType(5, g.ConsumerGroupMemberMetadataKey, g.ConsumerGroupMemberMetadataValue, 0),
    RecordType(6, g.ConsumerGroupTargetAssignmentMetadataKey, g.ConsumerGroupTargetAssignmentMetadataValue, 0),
    RecordType(7, g.ConsumerGroupTargetAssignmentMemberKey, g.ConsumerGroupTargetAssignmentMemberValue, 0),
    RecordType(8, g.ConsumerGroupCurrentMemberAssignmentKey, g.ConsumerGroupCurrentMemberAssignmentValue, 0),
    RecordType(16, g.ConsumerGroupRegularExpressionKey, g.ConsumerGroupRegularExpressionValue, 0),
)
TRANSACTION_RECORD_TYPES = (RecordType(0, t.TransactionLogKey, t.TransactionLogValue, 1),)

_BY_KEY = {type_.key: type_ for type_ in GROUP_RECORD_TYPES + TRANSACTION_RECORD_TYPES}
_GROUP_BY_NUMBER = {type_.number: type_ for type_ in GROUP_RECORD_TYPES}
_TRANSACTION_BY_NUMBER = {type_.number: type_ for type_ in TRANSACTION_RECORD_TYPES}


def encode_record(key: Key, value: Value | None, value_version: int | None = None) -> CoordinatorRecord:
    """The record with this key; without a value a tombstone. The value is in the version that Kafka writes, if the
    caller names no other."""
    record_type = _BY_KEY[type(key)]
    (encoded_key,) = codec(record_type.key, 0).encode(key, _INT16.pack(record_type.number))
    if value is None:
        return CoordinatorRecord(bytes(encoded_key), None)
    if type(value) is not record_type.value:
        raise TypeError(f"{type(key).__name__} goes with {record_type.value.__name__}, not {type(value).__name__}")
    version = record_type.written_version if value_version is None else value_version
    (encoded_value,) = codec(record_type.value, version).encode(value, _INT16.pack(version))
    return CoordinatorRecord(bytes(encoded_key), bytes(encoded_value))


def decode_group_record(key: bytes, value: bytes | None) -> tuple[Key, Value | None]:
    """Key and value of a record of `__consumer_offsets`; DecodeError for one that is damaged, UnknownRecordType for
    one of another kind. Either can be passed over, and spoils no other."""
    return _decode(_GROUP_BY_NUMBER, key, value)


def decode_transaction_record(key: bytes, value: bytes | None) -> tuple[Key, Value | None]:
    """The same for a record of `__transaction_state`."""
    return _decode(_TRANSACTION_BY_NUMBER, key, value)


def _decode(types: dict[int, RecordType], key: bytes, value: bytes | None) -> tuple[Key, Value | None]:
    number = _number(key, "key")
    record_type = types.get(number)
    if record_type is None:
        raise UnknownRecordType(f"coordinator record of type {number} is not known here")
    decoded_key = _table(record_type.key, 0, key)
    if value is None:
        return decoded_key, None
    return decoded_key, _table(record_type.value, _number(value, "value"), value)


def _number(data: bytes, part: str) -> int:
    try:
        number: int = _INT16.unpack_from(data)[0]
    except error:
        raise DecodeError(
            f"coordinator record has a {part} of {len(data)} bytes, too short for its first field"
        ) from None
    return number


def _table(cls: type[Any], version: int, data: bytes) -> Any:
    try:
        found = codec(cls, version)
    except ValueError as unknown:
        raise DecodeError(f"{unknown}: it was written by a later version") from None
    decoded, position = found.decode(memoryview(data), _INT16.size)
    if position != len(data):
        raise DecodeError(f"{cls.__name__} v{version} has {len(data) - position} bytes too many")
    return decoded
