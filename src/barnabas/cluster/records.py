"""The records that change the cluster's metadata: Kafka's own, with Kafka's keys, versions and frame.

    frame version (uvarint, 1) | key (uvarint) | version (uvarint) | the record

is the value of a record in Kafka's metadata log, and what goes into our metadata store. What a record does to the
image is said in `image`. A record is written in the newest version of its table, which all belong to metadata.version
4.3-IV0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from barnabas.wire.compiler import Codec, codec
from barnabas.wire.primitives import DecodeError, decode_uvarint, encode_uvarint
from barnabas.wire.schema import (
    Buffer,
    array,
    boolean,
    bytes_,
    float64,
    int8,
    int16,
    int32,
    int64,
    schema,
    schema_of,
    string,
    struct,
    uint16,
    uuid,
)

METADATA_VERSION = 30  # 4.3-IV0, the first that knows every version below
FRAME_VERSION = 1

NO_LEADER = -1
NO_LEADER_CHANGE = -2

Record: TypeAlias = Any  # an instance of one of the tables below


@struct
class BrokerEndpoint:
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


@struct
class BrokerFeature:
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@schema(versions="0-4", flexible="0+")
class RegisterBrokerRecord:
    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean("2+")
    incarnation_id: bytes = uuid()
    broker_epoch: int = int64()
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint)
    features: list[BrokerFeature] = array(BrokerFeature)
    rack: str | None = string(nullable="0+")
    fenced: bool = boolean(default=True)
    in_controlled_shutdown: bool = boolean("1+")
    log_dirs: list[bytes] = array(uuid, "3+", tag=0, tagged="3+")
    cordoned_log_dirs: list[bytes] | None = array(uuid, "4+", nullable="4+", default=None, tag=1, tagged="4+")


@schema(versions="0", flexible="0+")
class UnregisterBrokerRecord:
    broker_id: int = int32()
    broker_epoch: int = int64()


@schema(versions="0", flexible="0+")
class TopicRecord:
    name: str = string()
    topic_id: bytes = uuid()


@schema(versions="0-2", flexible="0+")
class PartitionRecord:
    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    replicas: list[int] = array(int32)
    isr: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    leader: int = int32(default=NO_LEADER)
    leader_recovery_state: int = int8(tag=0, tagged="0+")
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[bytes] = array(uuid, "1+")
    eligible_leader_replicas: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=1, tagged="2+")
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=2, tagged="2+")


@schema(versions="0", flexible="0+")
class ConfigRecord:
    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable="0+")


@schema(versions="0-2", flexible="0+")
class PartitionChangeRecord:
    """Every change raises the partition epoch; one that names a leader, even the same, raises the leader epoch too."""

    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    isr: list[int] | None = array(int32, nullable="0+", default=None, tag=0, tagged="0+")
    leader: int = int32(default=NO_LEADER_CHANGE, tag=1, tagged="0+")
    replicas: list[int] | None = array(int32, nullable="0+", default=None, tag=2, tagged="0+")
    removing_replicas: list[int] | None = array(int32, nullable="0+", default=None, tag=3, tagged="0+")
    adding_replicas: list[int] | None = array(int32, nullable="0+", default=None, tag=4, tagged="0+")
    leader_recovery_state: int = int8(default=-1, tag=5, tagged="0+")
    directories: list[bytes] | None = array(uuid, "1+", nullable="1+", default=None, tag=8, tagged="1+")
    eligible_leader_replicas: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=6, tagged="2+")
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=7, tagged="2+")


@schema(versions="0", flexible="0+")
class FenceBrokerRecord:
    id: int = int32()
    epoch: int = int64()


@schema(versions="0", flexible="0+")
class UnfenceBrokerRecord:
    id: int = int32()
    epoch: int = int64()


@schema(versions="0", flexible="0+")
class RemoveTopicRecord:
    topic_id: bytes = uuid()


@schema(versions="0", flexible="0+")
class UserScramCredentialRecord:
    name: str = string()
    mechanism: int = int8()
    salt: Buffer = bytes_()
    stored_key: Buffer = bytes_()
    server_key: Buffer = bytes_()
    iterations: int = int32()


@schema(versions="0", flexible="0+")
class FeatureLevelRecord:
    name: str = string()
    feature_level: int = int16()


@struct
class EntityData:
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@schema(versions="0", flexible="0+")
class ClientQuotaRecord:
    entity: list[EntityData] = array(EntityData)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@schema(versions="0", flexible="0+")
class ProducerIdsRecord:
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()


@schema(versions="0-3", flexible="0+")
class BrokerRegistrationChangeRecord:
    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = int8(tag=0, tagged="0+")  # 1: fenced from now on, -1: no longer, 0: as before
    in_controlled_shutdown: int = int8("1+", tag=1, tagged="1+")  # 1: from now on, 0: as before
    log_dirs: list[bytes] = array(uuid, "2+", tag=2, tagged="2+")
    cordoned_log_dirs: list[bytes] | None = array(uuid, "3+", nullable="3+", default=None, tag=3, tagged="3+")


@schema(versions="0", flexible="0+")
class AccessControlEntryRecord:
    id: bytes = uuid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@schema(versions="0", flexible="0+")
class RemoveAccessControlEntryRecord:
    id: bytes = uuid()


@schema(versions="0", flexible="0+")
class NoOpRecord:
    pass


@schema(versions="0", flexible="0+")
class RemoveUserScramCredentialRecord:
    name: str = string()
    mechanism: int = int8()


@schema(versions="0", flexible="0+")
class BeginTransactionRecord:
    """What follows counts only once an EndTransactionRecord does: for a change too large for one append (KIP-868)."""

    name: str | None = string(nullable="0+", default=None, tag=0, tagged="0+")


@schema(versions="0", flexible="0+")
class EndTransactionRecord:
    pass


@schema(versions="0", flexible="0+")
class AbortTransactionRecord:
    reason: str | None = string(nullable="0+", default=None, tag=0, tagged="0+")


@schema(versions="0", flexible="0+")
class ClearElrRecord:
    topic_name: str = string()


KEYS: dict[int, type] = {
    0: RegisterBrokerRecord,
    1: UnregisterBrokerRecord,
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    7: FenceBrokerRecord,
    8: UnfenceBrokerRecord,
    9: RemoveTopicRecord,
    11: UserScramCredentialRecord,
    12: FeatureLevelRecord,
    14: ClientQuotaRecord,
    15: ProducerIdsRecord,
    17: BrokerRegistrationChangeRecord,
    18: AccessControlEntryRecord,
    19: RemoveAccessControlEntryRecord,
    20: NoOpRecord,
    22: RemoveUserScramCredentialRecord,
    23: BeginTransactionRecord,
    24: EndTransactionRecord,
    25: AbortTransactionRecord,
    28: ClearElrRecord,
}


def _writer(key: int, cls: type) -> tuple[bytes, Codec[Any]]:
    version = schema_of(cls).versions.highest
    frame = b"".join(encode_uvarint(part) for part in (FRAME_VERSION, key, version))
    return frame, codec(cls, version)


_WRITERS = {cls: _writer(key, cls) for key, cls in KEYS.items()}


def encode(record: Record) -> bytes:
    frame, newest = _WRITERS[type(record)]
    return b"".join((frame, *newest.encode(record)))


def encode_all(records: Iterable[Record]) -> list[bytes]:
    return [encode(record) for record in records]


def decode(data: bytes) -> Record:
    """The record in a frame; DecodeError if it is damaged, or of a kind or version that is not known here."""
    view = memoryview(data)
    frame_version, position = decode_uvarint(view, 0)
    key, position = decode_uvarint(view, position)
    version, position = decode_uvarint(view, position)
    cls = KEYS.get(key)
    if frame_version != FRAME_VERSION or cls is None or not schema_of(cls).versions.has(version):
        raise DecodeError(
            f"metadata record with frame version {frame_version}, key {key}, version {version} is not known here; "
            f"it was written by a later version of Barnabas"
        )
    record: Record
    record, position = codec(cls, version).decode(view, position)
    if position != len(data):
        raise DecodeError(f"{cls.__name__} has {len(data) - position} bytes too many")
    return record
