"""Requests about offsets, between the wire and the store: OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete.

The shard finds the group. Here it is asked whether the request may pass, and KafkaError is raised when it may not: that
refuses the request as a whole. What is wrong with a single partition is told in the response. A change adds its records
to the list that is handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.coordinator.group import CommittedPartition, Group
from barnabas.coordinator.offsets import NO_EXPIRY, CommittedOffset, OffsetStore, commit_record
from barnabas.coordinator.outcome import CoordinatorRecord
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.records.batch import HEADER_SIZE, NO_PRODUCER_ID
from barnabas.records.builder import RECORD_OVERHEAD
from barnabas.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.wire.messages.k09_offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from barnabas.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas.wire.schema import ZERO_UUID

BROKERS_RETENTION = -1
"""What a client of OffsetCommit 2 to 4 sends that has no wish of its own."""

NO_OFFSET = -1
NO_LEADER_EPOCH = -1
_END_OF_TIME_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class OffsetLimits:
    """`metadata_max_bytes` is offset.metadata.max.bytes, which counts characters; `batch_max_bytes` the
    max.message.bytes of the offsets topic."""

    metadata_max_bytes: int = 4096
    batch_max_bytes: int = 1_048_588


class _Commit(NamedTuple):
    topic: str
    partition: int
    committed: CommittedOffset


def commit(
    store: OffsetStore,
    group: Group,
    request: OffsetCommitRequest,
    version: int,
    now_ms: int,
    limits: OffsetLimits,
    records: list[CoordinatorRecord],
) -> OffsetCommitResponse:
    """Every topic of the request has its name and, where the topic exists, its id."""
    group.validate_offset_commit(
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        is_transactional=False,
        api_version=version,
        partitions=(
            CommittedPartition(topic.name, topic.topic_id, partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
        ),
    )
    has_expiry = request.retention_time_ms != BROKERS_RETENTION
    expire_timestamp_ms = min(now_ms + request.retention_time_ms, _END_OF_TIME_MS) if has_expiry else NO_EXPIRY
    commits: list[_Commit] = []
    topics = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            if _fits(partition.committed_metadata, limits):
                code = ErrorCode.NONE
                committed = CommittedOffset(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                    now_ms,
                    expire_timestamp_ms,
                    ZERO_UUID if has_expiry else topic.topic_id,  # a record with an expiry has no room for it
                )
                commits.append(_Commit(topic.name, partition.partition_index, committed))
            partitions.append(OffsetCommitResponsePartition(partition.partition_index, code))
        topics.append(OffsetCommitResponseTopic(topic.name, topic.topic_id, partitions))
    _commit_all(store, request.group_id, commits, NO_PRODUCER_ID, limits, records)
    return OffsetCommitResponse(topics=topics)


def commit_refused(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic.name,
                topic.topic_id,
                [OffsetCommitResponsePartition(partition.partition_index, code) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def commit_in_transaction(
    store: OffsetStore,
    group: Group,
    request: TxnOffsetCommitRequest,
    version: int,
    now_ms: int,
    limits: OffsetLimits,
    topic_id_of: Callable[[str], bytes],
    records: list[CoordinatorRecord],
) -> TxnOffsetCommitResponse:
    """The offsets stay pending until the producer's transaction ends."""
    try:
        group.validate_offset_commit(
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            is_transactional=True,
            api_version=version,
            partitions=(
                CommittedPartition(topic.name, topic_id_of(topic.name), partition.partition_index)
                for topic in request.topics
                for partition in topic.partitions
            ),
        )
    except KafkaError as error:
        if error.code is ErrorCode.STALE_MEMBER_EPOCH:  # producers know generations only
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.message) from error
        raise
    commits: list[_Commit] = []
    topics = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            if _fits(partition.committed_metadata, limits):
                code = ErrorCode.NONE
                committed = CommittedOffset(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                    now_ms,
                )
                commits.append(_Commit(topic.name, partition.partition_index, committed))
            partitions.append(TxnOffsetCommitResponsePartition(partition.partition_index, code))
        topics.append(TxnOffsetCommitResponseTopic(topic.name, partitions))
    _commit_all(store, request.group_id, commits, request.producer_id, limits, records)
    return TxnOffsetCommitResponse(topics=topics)


def commit_in_transaction_refused(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                [TxnOffsetCommitResponsePartition(partition.partition_index, code) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def fetch(
    store: OffsetStore, group: Group | None, request: OffsetFetchRequestGroup, *, require_stable: bool
) -> OffsetFetchResponseGroup:
    """A group that does not exist has committed nothing, which is no error. Without topics: all that have offsets."""
    if group is not None:
        group.validate_offset_fetch(request.member_id, request.member_epoch)
    group_id = request.group_id
    response = OffsetFetchResponseGroup(group_id)
    if request.topics is None:
        topics: dict[str, OffsetFetchResponseTopics] = {}
        for name, partition, committed in store.partitions(group_id):
            topic = topics.setdefault(name, OffsetFetchResponseTopics(name))
            is_unstable = require_stable and store.is_pending(group_id, name, partition)
            topic.partitions.append(_fetched(partition, committed, is_unstable=is_unstable))
        response.topics = list(topics.values())
        return response
    for asked in request.topics:
        topic = OffsetFetchResponseTopics(asked.name, asked.topic_id)
        response.topics.append(topic)
        for partition in asked.partition_indexes:
            found = store.get(group_id, asked.name, partition)
            if found is not None and not found.is_of(asked.topic_id):
                found = None  # it was for a topic of the same name that is gone
            is_unstable = require_stable and store.is_pending(group_id, asked.name, partition)
            topic.partitions.append(_fetched(partition, found, is_unstable=is_unstable))
    return response


def delete(
    store: OffsetStore, group: Group, request: OffsetDeleteRequest, records: list[CoordinatorRecord]
) -> OffsetDeleteResponse:
    group.validate_offset_delete()
    topics = []
    for topic in request.topics:
        is_subscribed = group.is_subscribed_to(topic.name)
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE
        partitions = []
        for partition in topic.partitions:
            partitions.append(OffsetDeleteResponsePartition(partition.partition_index, code))
            if not is_subscribed:
                record = store.delete(request.group_id, topic.name, partition.partition_index)
                if record is not None:
                    records.append(record)
        topics.append(OffsetDeleteResponseTopic(topic.name, partitions))
    return OffsetDeleteResponse(topics=topics)


def _commit_all(
    store: OffsetStore,
    group_id: str,
    commits: list[_Commit],
    producer_id: int,
    limits: OffsetLimits,
    records: list[CoordinatorRecord],
) -> None:
    """All of them or, if they are too much for one batch of the log, none."""
    made = [commit_record(group_id, *commit) for commit in commits]
    size = HEADER_SIZE + sum(RECORD_OVERHEAD + len(record.key) + len(record.value or b"") for record in made)
    if size > limits.batch_max_bytes:
        raise KafkaError(  # as Kafka says it
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"{len(made)} offsets of group {group_id!r} take {size} bytes; {limits.batch_max_bytes} fit in one batch",
        )
    for commit in commits:
        store.commit(group_id, *commit, producer_id)
    records += made


def _fits(metadata: str | None, limits: OffsetLimits) -> bool:
    """The limit is called one of bytes, and is one of Java's characters: units of UTF-16."""
    return not metadata or len(metadata.encode("utf-16-le")) <= 2 * limits.metadata_max_bytes


def _fetched(partition: int, committed: CommittedOffset | None, *, is_unstable: bool) -> OffsetFetchResponsePartitions:
    if is_unstable:
        return OffsetFetchResponsePartitions(
            partition, NO_OFFSET, NO_LEADER_EPOCH, "", ErrorCode.UNSTABLE_OFFSET_COMMIT
        )
    if committed is None:
        return OffsetFetchResponsePartitions(partition, NO_OFFSET, NO_LEADER_EPOCH, "")
    return OffsetFetchResponsePartitions(partition, committed.offset, committed.leader_epoch, committed.metadata)
