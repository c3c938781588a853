"""CreatePartitions 0-3: raise a topic's number of partitions; answered when the new ones can be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.forwarding import by_controller
from barnabas.cluster.events import CreatePartitions, Failure, NewPartitions
from barnabas.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


def _refuse(request: CreatePartitionsRequest, failure: Failure) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(topic.name, failure.code, failure.message) for topic in request.topics]
    )


@by_controller(_refuse)
async def handle(request: CreatePartitionsRequest, context: Context) -> CreatePartitionsResponse:
    broker = context.broker
    topics = tuple(
        NewPartitions(
            topic.name,
            topic.count,
            None if topic.assignments is None else tuple(tuple(chosen.broker_ids) for chosen in topic.assignments),
        )
        for topic in request.topics
    )
    created = await broker.metadata.submit(CreatePartitions(topics, request.validate_only))
    await broker.replicas.usable()
    response = CreatePartitionsResponse()
    for outcome in created:
        result = CreatePartitionsTopicResult(outcome.topic)
        if outcome.error:
            result.error_code, result.error_message = outcome.error.code, outcome.error.message
            broker.metrics.error(37, outcome.error.code)
        response.results.append(result)
    return response
