"""OffsetFetch 1-10: what groups have committed; null topics asks for all.

- 7: offsets of open transactions can be refused (KIP-447). 8: several groups at once (KIP-709), until then one.
- 9: members of the consumer protocol, by epoch (KIP-848). 10: topic ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from barnabas.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context
    from barnabas.cluster.image import Image

_FIRST_VERSION_WITH_GROUPS = 8
_FIRST_VERSION_BY_TOPIC_ID = 10


async def handle(request: OffsetFetchRequest, context: Context) -> OffsetFetchResponse:
    if context.version >= _FIRST_VERSION_WITH_GROUPS:
        groups = [await _fetch(group, request.require_stable, context) for group in request.groups]
        return OffsetFetchResponse(groups=groups)
    topics = request.topics
    if topics is not None and context.version < 2:
        topics = topics or []
    asked = OffsetFetchRequestGroup(
        request.group_id,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopics(topic.name, ZERO_UUID, topic.partition_indexes) for topic in topics],
    )
    return _as_single(await _fetch(asked, request.require_stable, context), asked)


def _as_single(group: OffsetFetchResponseGroup, asked: OffsetFetchRequestGroup) -> OffsetFetchResponse:
    """One group in the form of the versions before 8; version 1 has no place for an error but with the partitions."""
    topics = [
        OffsetFetchResponseTopic(
            topic.name,
            [
                OffsetFetchResponsePartition(
                    each.partition_index,
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.metadata,
                    each.error_code,
                )
                for each in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    if group.error_code:
        topics = [
            OffsetFetchResponseTopic(
                topic.name,
                [
                    OffsetFetchResponsePartition(index, -1, -1, "", group.error_code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in asked.topics or ()
        ]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


async def _fetch(asked: OffsetFetchRequestGroup, require_stable: bool, context: Context) -> OffsetFetchResponseGroup:
    image = context.broker.metadata.image
    by_id = context.version >= _FIRST_VERSION_BY_TOPIC_ID
    unknown = _name_topics(asked, image) if by_id else []
    try:
        group: OffsetFetchResponseGroup = await context.broker.groups.execute(
            asked.group_id,
            lambda shard, token, now: shard.offset_fetch(asked, require_stable=require_stable, token=token),
        )
    except KafkaError as error:
        return OffsetFetchResponseGroup(asked.group_id, error_code=error.code)
    if by_id:
        group.topics = [topic for topic in group.topics if _with_id(topic, image)] + unknown
    return group


def _name_topics(asked: OffsetFetchRequestGroup, image: Image) -> list[OffsetFetchResponseTopics]:
    """Give the topics of a request their names; the answers for those that have none."""
    unknown = []
    named = []
    for topic in asked.topics or ():
        name = image.topic_names.get(topic.topic_id)
        if name is not None:
            topic.name = name
            named.append(topic)
            continue
        partitions = [
            OffsetFetchResponsePartitions(index, -1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)
            for index in topic.partition_indexes
        ]
        unknown.append(OffsetFetchResponseTopics("", topic.topic_id, partitions))
    if asked.topics is not None:
        asked.topics = named
    return unknown


def _with_id(topic: OffsetFetchResponseTopics, image: Image) -> bool:
    """Give a topic its id; a topic that is gone has none, and cannot be told in these versions."""
    found = image.topics.get(topic.name)
    if found is not None:
        topic.topic_id = found.id
    return found is not None
