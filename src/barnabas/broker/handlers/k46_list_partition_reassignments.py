"""ListPartitionReassignments 0: what moves now, of some partitions or of all (KIP-455)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.forwarding import by_controller
from barnabas.cluster.events import Failure
from barnabas.cluster.reassignment import list_reassignments
from barnabas.wire.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


def _refuse(request: ListPartitionReassignmentsRequest, failure: Failure) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=failure.code, error_message=failure.message)


@by_controller(_refuse)
async def handle(request: ListPartitionReassignmentsRequest, context: Context) -> ListPartitionReassignmentsResponse:
    wanted = None
    if request.topics is not None:
        wanted = [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    topics: dict[str, OngoingTopicReassignment] = {}
    for move in list_reassignments(context.broker.metadata.image, wanted):
        topics.setdefault(move.topic, OngoingTopicReassignment(move.topic)).partitions.append(
            OngoingPartitionReassignment(move.partition, list(move.replicas), list(move.adding), list(move.removing))
        )
    return ListPartitionReassignmentsResponse(topics=list(topics.values()))
