"""AlterPartitionReassignments 0-1: move partitions to other brokers, or cancel a move (KIP-455).

- 1: a change of the number of replicas can be declined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.forwarding import by_controller
from barnabas.cluster.events import AlterReassignments, Reassignment
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


@by_controller
async def handle(request: AlterPartitionReassignmentsRequest, context: Context) -> AlterPartitionReassignmentsResponse:
    broker = context.broker
    wanted = tuple(
        Reassignment(
            topic.name, partition.partition_index, None if partition.replicas is None else tuple(partition.replicas)
        )
        for topic in request.topics
        for partition in topic.partitions
    )
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change
    )
    try:
        altered = await broker.metadata.submit(AlterReassignments(wanted, request.allow_replication_factor_change))
    except KafkaError as error:
        if error.code is ErrorCode.NOT_CONTROLLER:
            raise
        response.error_code, response.error_message = error.code, error.message
        return response
    await broker.replicas.settled()
    topics: dict[str, ReassignableTopicResponse] = {}
    for partition in altered:
        result = ReassignablePartitionResponse(partition.partition)
        if partition.error:
            result.error_code, result.error_message = partition.error.code, partition.error.message
            broker.metrics.error(45, partition.error.code)
        topics.setdefault(partition.topic, ReassignableTopicResponse(partition.topic)).partitions.append(result)
    response.responses = list(topics.values())
    return response
