"""CreateTopics 2-7: with a number of partitions and replicas, or a manual assignment; answered when they can be used.

- 4: -1 asks for the broker's defaults. 5: the response tells the configuration. 7: and the topic's id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.forwarding import by_controller
from barnabas.cluster.events import CreatedTopic, CreateTopics, Failure, NewTopic
from barnabas.core.errors import ErrorCode
from barnabas.core.topic_keys import describe_topic
from barnabas.wire.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.broker.dispatch import Context


def _refuse(request: CreateTopicsRequest, failure: Failure) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name, error_code=failure.code, error_message=failure.message, configs=None)
            for name in dict.fromkeys(topic.name for topic in request.topics)
        ]
    )


@by_controller(_refuse)
async def handle(request: CreateTopicsRequest, context: Context) -> CreateTopicsResponse:
    broker = context.broker
    event = CreateTopics(tuple(_new_topic(topic) for topic in request.topics), request.validate_only)
    created = await broker.metadata.submit(event)
    await broker.replicas.usable()
    return CreateTopicsResponse(topics=[_result(topic, broker) for topic in created])


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        tuple((assignment.partition_index, tuple(assignment.broker_ids)) for assignment in topic.assignments),
        {config.name: config.value for config in topic.configs},
    )


def _result(topic: CreatedTopic, broker: Broker) -> CreatableTopicResult:
    if topic.error:
        broker.metrics.error(19, topic.error.code)
        return CreatableTopicResult(
            topic.name, error_code=topic.error.code, error_message=topic.error.message, configs=None
        )
    return CreatableTopicResult(
        topic.name,
        topic.topic_id,
        ErrorCode.NONE,
        None,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        configs=[
            CreatableTopicConfigs(entry.name, entry.value, entry.read_only, entry.source, entry.sensitive)
            for entry in describe_topic(topic.configs, broker.config)
        ],
    )
