"""DeleteTopics 1-6: by name, or from version 6 by id; answered when the topic can no longer be used.

The directories are set aside at once and removed a little later, so that readers can finish. With
`delete.topic.enable=false` all of it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.forwarding import by_controller
from barnabas.cluster.events import DeleteTopics, TopicReference
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k20_delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


@by_controller
async def handle(request: DeleteTopicsRequest, context: Context) -> DeleteTopicsResponse:
    broker = context.broker
    if context.version >= 6:
        references = tuple(TopicReference(topic.name, topic.topic_id) for topic in request.topics)
    else:
        references = tuple(TopicReference(name) for name in request.topic_names)
    if not broker.config["delete.topic.enable"]:
        code = ErrorCode.TOPIC_DELETION_DISABLED
        message = "delete.topic.enable is false on this broker"
        return DeleteTopicsResponse(
            responses=[DeletableTopicResult(topic.name, topic.topic_id, code, message) for topic in references]
        )
    deleted = await broker.metadata.submit(DeleteTopics(references))
    await broker.replicas.settled()
    response = DeleteTopicsResponse()
    for topic in deleted:
        result = DeletableTopicResult(topic.name, topic.topic_id)
        if topic.error:
            result.error_code, result.error_message = topic.error.code, topic.error.message
            broker.metrics.error(20, topic.error.code)
        response.responses.append(result)
    return response
