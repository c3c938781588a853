"""OffsetDelete 0: forget what a group has committed for topics that it no longer reads (KIP-496).

Partitions that do not exist are answered here, unless the group refuses the request as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context
    from barnabas.cluster.image import Image


async def handle(request: OffsetDeleteRequest, context: Context) -> OffsetDeleteResponse:
    image = context.broker.metadata.image
    missing = [answer for topic in request.topics if (answer := _missing(topic, image)).partitions]
    request.topics = [known for topic in request.topics if (known := _known(topic, image)).partitions]
    try:
        response: OffsetDeleteResponse = await context.broker.groups.execute(
            request.group_id, lambda shard, token, now: shard.offset_delete(request, token)
        )
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    if not response.error_code:
        response.topics += missing
    return response


def _known(topic: OffsetDeleteRequestTopic, image: Image) -> OffsetDeleteRequestTopic:
    known = [each for each in topic.partitions if image.partition(topic.name, each.partition_index) is not None]
    return OffsetDeleteRequestTopic(topic.name, known)


def _missing(topic: OffsetDeleteRequestTopic, image: Image) -> OffsetDeleteResponseTopic:
    missing = [
        OffsetDeleteResponsePartition(each.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for each in topic.partitions
        if image.partition(topic.name, each.partition_index) is None
    ]
    return OffsetDeleteResponseTopic(topic.name, missing)
