"""DescribeTopicPartitions 0: topics page by page in the order of their names, with eligible leader replicas (KIP-966).

A page has at most `response_partition_limit` partitions (and never over 2000); the cursor says where the next begins.
No topics means all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.authorized import TOPIC_OPERATIONS
from barnabas.cluster.image import INTERNAL_TOPICS
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context
    from barnabas.cluster.image import Image, Partition

_MOST_PARTITIONS = 2000


def handle(request: DescribeTopicPartitionsRequest, context: Context) -> DescribeTopicPartitionsResponse:
    image = context.broker.metadata.image
    names = sorted({topic.name for topic in request.topics} or image.topics)
    start = request.cursor or Cursor("", 0)
    if start.partition_index < 0:
        return DescribeTopicPartitionsResponse(
            topics=[DescribeTopicPartitionsResponseTopic(ErrorCode.INVALID_REQUEST, name) for name in names]
        )
    left = max(1, min(request.response_partition_limit, _MOST_PARTITIONS))
    response = DescribeTopicPartitionsResponse()
    for name in names:
        if name < start.topic_name:
            continue
        if not left:
            response.next_cursor = Cursor(name, 0)
            break
        topic = image.topics.get(name)
        if topic is None:
            response.topics.append(DescribeTopicPartitionsResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name))
            continue
        first = start.partition_index if name == start.topic_name else 0
        page = topic.partitions[first : first + left]
        response.topics.append(
            DescribeTopicPartitionsResponseTopic(
                ErrorCode.NONE,
                name,
                topic.id,
                name in INTERNAL_TOPICS,
                [_partition(image, first + position, partition) for position, partition in enumerate(page)],
                TOPIC_OPERATIONS,
            )
        )
        left -= len(page)
        if first + len(page) < len(topic.partitions):
            response.next_cursor = Cursor(name, first + len(page))
            break
    return response


def _partition(image: Image, index: int, partition: Partition) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        ErrorCode.NONE if partition.leader in image.brokers else ErrorCode.LEADER_NOT_AVAILABLE,
        index,
        partition.leader,
        partition.leader_epoch,
        list(partition.replicas),
        list(partition.isr),
        list(partition.eligible_leader_replicas),
        list(partition.last_known_elr),
        [replica for replica in partition.replicas if not image.is_alive(replica)],
    )
