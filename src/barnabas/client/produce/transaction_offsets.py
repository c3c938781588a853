"""Offsets of a group that are committed as part of a transaction: the request to the group's coordinator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from barnabas.client.errors import refused
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

if TYPE_CHECKING:
    from barnabas.client.coordinator import Coordinator
    from barnabas.client.group.values import GroupMetadata, OffsetAndMetadata
    from barnabas.client.metadata import TopicPartition
    from barnabas.client.produce.identity import ProducerIdentity

_HIGHEST_OF_VERSION_1 = 4
_LEFT_BEHIND = {
    ErrorCode.UNKNOWN_MEMBER_ID: "its member is no longer in it",
    ErrorCode.ILLEGAL_GENERATION: "it has rebalanced",
    ErrorCode.STALE_MEMBER_EPOCH: "it has rebalanced",
    ErrorCode.FENCED_MEMBER_EPOCH: "another has taken its member's place",
    ErrorCode.FENCED_INSTANCE_ID: "another has taken its member's place",
}
"""What the group tells a member whose partitions may be others' by now: its transaction must be aborted."""


class HasOffsets(Protocol):
    """What `send_offsets` needs of a consumer."""

    def passed(self) -> Mapping[TopicPartition, OffsetAndMetadata]: ...

    def group_metadata(self) -> GroupMetadata: ...


def commit_offsets(
    coordinator: Coordinator,
    transactional_id: str,
    identity: ProducerIdentity,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    group: GroupMetadata,
    adds_group: bool,
) -> Callable[[], Awaitable[None]]:
    """An attempt, to be repeated while it may pass. `adds_group`: the request adds the group to the transaction."""
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for (topic, partition), (offset, metadata, leader_epoch) in offsets.items():
        wanted = TxnOffsetCommitRequestPartition(partition, offset, leader_epoch, metadata)
        topics.setdefault(topic, []).append(wanted)
    request = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        generation_id=group.generation,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=[TxnOffsetCommitRequestTopic(name, partitions) for name, partitions in topics.items()],
    )

    async def attempt() -> None:
        response = await coordinator.ask(request, highest=None if adds_group else _HIGHEST_OF_VERSION_1)
        for topic in response.topics:
            for answer in topic.partitions:
                coordinator.check(answer.error_code)
                _check(answer.error_code, f"{topic.name}-{answer.partition_index}", group.group_id)

    return attempt


def _check(code: int, partition: str, group_id: str) -> None:
    if not code:
        return
    error = refused(code, f"cannot commit the offset of {partition} for group {group_id!r}")
    if error.code in _LEFT_BEHIND:
        reason = f"{_LEFT_BEHIND[error.code]}, and the records may be somebody else's by now"
        raise KafkaError(error.code, f"cannot commit offsets for group {group_id!r}: {reason}")
    raise error
