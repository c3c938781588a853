"""OffsetCommit 2-10: where a group goes on reading, kept in `__consumer_offsets`.

Partitions that do not exist are answered here; the rest is the group's to accept or refuse.

- 6: leader epochs. 7: static members (KIP-345). 9: members of the consumer protocol, by epoch (KIP-848). 10: topic ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.dispatch import after
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context, Later
    from barnabas.cluster.image import Image

_FIRST_VERSION_BY_TOPIC_ID = 10


def handle(request: OffsetCommitRequest, context: Context) -> OffsetCommitResponse | Later[OffsetCommitResponse]:
    known, refused = _split(request.topics, context.broker.metadata.image, context.version)
    if refused and not known:
        return OffsetCommitResponse(topics=refused)
    request.topics = known
    answer = context.broker.groups.answer(
        request.group_id,
        lambda shard, token, now: shard.offset_commit(request, context.version, token, now),
        lambda error: OffsetCommitResponse(topics=[_refused(topic, error.code) for topic in known]),
    )
    return after(answer, lambda response: _with(response, refused)) if refused else answer


def _with(response: OffsetCommitResponse, refused: list[OffsetCommitResponseTopic]) -> OffsetCommitResponse:
    response.topics += refused
    return response


def _split(
    topics: list[OffsetCommitRequestTopic], image: Image, version: int
) -> tuple[list[OffsetCommitRequestTopic], list[OffsetCommitResponseTopic]]:
    """What exists, with name and id, and the answer to the rest."""
    known: list[OffsetCommitRequestTopic] = []
    refused: list[OffsetCommitResponseTopic] = []
    for topic in topics:
        by_id = version >= _FIRST_VERSION_BY_TOPIC_ID
        found = image.topic_by_id(topic.topic_id) if by_id else image.topics.get(topic.name)
        if found is None:
            refused.append(
                _refused(topic, ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            )
            continue
        topic.name, topic.topic_id = found.name, found.id
        count = len(found.partitions)
        missing = [each for each in topic.partitions if not 0 <= each.partition_index < count]
        if missing:
            rest = OffsetCommitRequestTopic(found.name, found.id, missing)
            refused.append(_refused(rest, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            topic.partitions = [each for each in topic.partitions if 0 <= each.partition_index < count]
        if topic.partitions:
            known.append(topic)
    return known, refused


def _refused(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        topic.name,
        topic.topic_id,
        [OffsetCommitResponsePartition(partition.partition_index, code) for partition in topic.partitions],
    )
