"""The records of `__consumer_offsets`, in every version that Kafka ever wrote: offsets, and both kinds of groups.

How a key and a value become a record is said in `records`.
"""

from __future__ import annotations

from barnabas.wire.schema import (
    Buffer,
    array,
    bytes_,
    int8,
    int32,
    int64,
    nested,
    schema,
    string,
    struct,
    uuid,
)


@schema(versions="0", flexible="none")
class LegacyOffsetCommitKey:
    """What 0.8 wrote; the same offset may stand under an OffsetCommitKey too, and the later record counts."""

    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")


@schema(versions="0", flexible="none")
class LegacyOffsetCommitValue:
    offset: int = int64("0")
    metadata: str = string("0")
    commit_timestamp: int = int64("0")


@schema(versions="0", flexible="none")
class OffsetCommitKey:
    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")


@schema(versions="0-4", flexible="4+")
class OffsetCommitValue:
    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1)
    topic_id: bytes = uuid("4+", tag=0, tagged="4+")


@schema(versions="0", flexible="none")
class GroupMetadataKey:
    group: str = string("0")


@struct
class MemberMetadata:
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1)
    session_timeout: int = int32()
    subscription: Buffer = bytes_()
    assignment: Buffer = bytes_()


@schema(versions="0-4", flexible="4+")
class GroupMetadataValue:
    """A classic group, whole; written when a generation is settled, and when the group becomes empty."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1)
    members: list[MemberMetadata] = array(MemberMetadata)


@schema(versions="0", flexible="none")
class ConsumerGroupMetadataKey:
    group_id: str = string("0")


@schema(versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    epoch: int = int32()
    metadata_hash: int = int64(tag=0, tagged="0+")


@schema(versions="0", flexible="none")
class ConsumerGroupPartitionMetadataKey:
    """Read, and never written with a value: the metadata hash took its place (KIP-1101)."""

    group_id: str = string("0")


@struct
class PartitionMetadata:
    partition: int = int32()
    racks: list[str] = array(string)


@struct
class TopicMetadata:
    topic_id: bytes = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)


@schema(versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    topics: list[TopicMetadata] = array(TopicMetadata)


@schema(versions="0", flexible="none")
class ConsumerGroupMemberMetadataKey:
    group_id: str = string("0")
    member_id: str = string("0")


@struct
class ClassicProtocol:
    name: str = string()
    metadata: Buffer = bytes_()


@struct
class ClassicMemberMetadata:
    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


@schema(versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = nested(
        ClassicMemberMetadata, nullable="0+", tag=0, tagged="0+"
    )


@schema(versions="0", flexible="none")
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: str = string("0")


@schema(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, tagged="0+")


@schema(versions="0", flexible="none")
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: str = string("0")
    member_id: str = string("0")


@struct
class TopicPartition:
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


@schema(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: list[TopicPartition] = array(TopicPartition)


@schema(versions="0", flexible="none")
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: str = string("0")
    member_id: str = string("0")


@struct
class TopicPartitions:
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, nullable="0+", tag=0, tagged="0+")


@schema(versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)


@schema(versions="0", flexible="none")
class ConsumerGroupRegularExpressionKey:
    group_id: str = string("0")
    regular_expression: str = string("0")


@schema(versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    topics: list[str] = array(string)
    version: int = int64()
    timestamp: int = int64()
