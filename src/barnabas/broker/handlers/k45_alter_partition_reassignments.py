"""AlterPartitionReassignments 0-1: move partitions to other brokers, or cancel a move (KIP-455).

- 1: a change of the number of replicas can be declined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.forwarding import by_controller
from barnabas.cluster.events import AlterReassignments, Failure, Reassignment
from barnabas.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


def _refuse(request: AlterPartitionReassignmentsRequest, failure: Failure) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=failure.code,
        error_message=failure.message,
        responses=[
            ReassignableTopicResponse(
                topic.name,
                [
                    ReassignablePartitionResponse(partition.partition_index, failure.code, failure.message)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


@by_controller(_refuse)
async def handle(request: AlterPartitionReassignmentsRequest, context: Context) -> AlterPartitionReassignmentsResponse:
    broker = context.broker
    wanted = tuple(
        Reassignment(
            topic.name, partition.partition_index, None if partition.replicas is None else tuple(partition.replicas)
        )
        for topic in request.topics
        for partition in topic.partitions
    )
    altered = await broker.metadata.submit(AlterReassignments(wanted, request.allow_replication_factor_change))
    await broker.replicas.usable()
    topics: dict[str, ReassignableTopicResponse] = {}
    for partition in altered:
        result = ReassignablePartitionResponse(partition.partition)
        if partition.error:
            result.error_code, result.error_message = partition.error.code, partition.error.message
            broker.metrics.error(45, partition.error.code)
        topics.setdefault(partition.topic, ReassignableTopicResponse(partition.topic)).partitions.append(result)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, responses=list(topics.values())
    )
