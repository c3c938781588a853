"""DeleteTopics 1-6: by name, or from version 6 by id; answered when the topic can no longer be used.

The directories are set aside at once and removed a little later, so that readers can finish. With
`delete.topic.enable=false` all of it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.forwarding import by_controller
from barnabas.cluster.events import DeleteTopics, Failure, TopicReference
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k20_delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


def _refuse(request: DeleteTopicsRequest, failure: Failure) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(topic.name, topic.topic_id, failure.code, failure.message)
            for topic in _references(request)
        ]
    )


@by_controller(_refuse)
async def handle(request: DeleteTopicsRequest, context: Context) -> DeleteTopicsResponse:
    broker = context.broker
    if not broker.config["delete.topic.enable"]:
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false on this broker")
    deleted = await broker.metadata.submit(DeleteTopics(_references(request)))
    await broker.replicas.usable()
    response = DeleteTopicsResponse()
    for topic in deleted:
        result = DeletableTopicResult(topic.name, topic.topic_id)
        if topic.error:
            result.error_code, result.error_message = topic.error.code, topic.error.message
            broker.metrics.error(20, topic.error.code)
        response.responses.append(result)
    return response


def _references(request: DeleteTopicsRequest) -> tuple[TopicReference, ...]:
    """A request has one of the two lists, by its version."""
    by_id = tuple(TopicReference(topic.name, topic.topic_id) for topic in request.topics)
    return by_id + tuple(TopicReference(name) for name in request.topic_names)
