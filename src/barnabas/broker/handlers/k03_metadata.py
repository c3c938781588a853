"""Metadata 0-13: brokers, topics, partitions and their leaders, with the addresses of the listener that was asked.

No topics means all in version 0 and none later, where null means all. A topic that is not there is created with the
broker's defaults if both the request and `auto.create.topics.enable` allow it, and is told as created in the same
response.

- 4: creation can be declined. 5: offline replicas. 7: leader epochs. 8: authorized operations.
- 10: topic ids in the response. 12: and in the request; earlier they are INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from barnabas.broker.authorized import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from barnabas.cluster.image import INTERNAL_TOPICS
from barnabas.cluster.topics import check_name
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context
    from barnabas.cluster.image import Image, Topic

_FIRST_VERSION_BY_TOPIC_ID = 12


async def handle(request: MetadataRequest, context: Context) -> MetadataResponse:
    broker = context.broker
    asked = request.topics
    if asked is None or (not asked and context.version == 0):
        asked = [MetadataRequestTopic(topic.id, topic.name) for topic in broker.metadata.image.topics.values()]
    elif context.version < _FIRST_VERSION_BY_TOPIC_ID and any(
        topic.name is None or topic.topic_id != ZERO_UUID for topic in asked
    ):
        return MetadataResponse(
            topics=[
                MetadataResponseTopic(ErrorCode.INVALID_REQUEST, topic.name or "", topic.topic_id) for topic in asked
            ]
        )
    asked = list({(topic.topic_id, topic.name): topic for topic in asked}.values())
    refusals: dict[str, ErrorCode] = {}
    if request.allow_auto_topic_creation and broker.config["auto.create.topics.enable"]:
        topics = broker.metadata.image.topics
        missing = [
            topic.name
            for topic in asked
            if topic.name is not None and topic.name not in topics and topic.topic_id == ZERO_UUID
        ]
        if missing:
            refusals = await broker.create_topics_on_demand(missing)
    image = broker.metadata.image
    response = MetadataResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.metadata.controller_id,
        brokers=list(_brokers(image, context.listener)),
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    for wanted in asked:
        told = _topic(image, wanted, context.listener)
        if told.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and wanted.name in refusals:
            told.error_code = refusals[wanted.name]
        if request.include_topic_authorized_operations and not told.error_code:
            told.topic_authorized_operations = TOPIC_OPERATIONS
        response.topics.append(told)
    return response


def _brokers(image: Image, listener: str) -> Iterable[MetadataResponseBroker]:
    for broker in image.brokers.values():
        endpoint = broker.endpoint(listener)
        if endpoint is not None and not broker.fenced:
            yield MetadataResponseBroker(broker.id, endpoint.host, endpoint.port, broker.rack)


def _topic(image: Image, wanted: MetadataRequestTopic, listener: str) -> MetadataResponseTopic:
    if wanted.name is None or wanted.topic_id != ZERO_UUID:  # under its name there may be another topic by now
        topic = image.topic_by_id(wanted.topic_id)
        if topic is None:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, wanted.topic_id)
    else:
        topic = image.topics.get(wanted.name)
        if topic is None:
            return MetadataResponseTopic(_why_absent(wanted.name), wanted.name, ZERO_UUID)
    return MetadataResponseTopic(
        ErrorCode.NONE,
        topic.name,
        topic.id,
        topic.name in INTERNAL_TOPICS,
        list(_partitions(image, topic, listener)),
    )


def _why_absent(name: str) -> ErrorCode:
    try:
        check_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _partitions(image: Image, topic: Topic, listener: str) -> Iterable[MetadataResponsePartition]:
    for index, partition in enumerate(topic.partitions):
        leader = image.brokers.get(partition.leader)
        error = ErrorCode.NONE
        if leader is None:
            error = ErrorCode.LEADER_NOT_AVAILABLE
        elif leader.endpoint(listener) is None:
            error = ErrorCode.LISTENER_NOT_FOUND
        yield MetadataResponsePartition(
            error,
            index,
            partition.leader,
            partition.leader_epoch,
            list(partition.replicas),
            list(partition.isr),
            [replica for replica in partition.replicas if not image.is_alive(replica)],
        )
