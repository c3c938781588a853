"""ElectLeaders 0-2: preferred leaders, or from version 1 any that live, for some partitions or for all (KIP-460)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.forwarding import by_controller
from barnabas.cluster.events import ElectLeaders, Failure
from barnabas.wire.messages.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


def _refuse(request: ElectLeadersRequest, failure: Failure) -> ElectLeadersResponse:
    """Version 0 knows errors of partitions alone."""
    results = [
        ReplicaElectionResult(
            topic.topic, [PartitionResult(index, failure.code, failure.message) for index in topic.partitions]
        )
        for topic in request.topic_partitions or ()
    ]
    return ElectLeadersResponse(error_code=failure.code, replica_election_results=results)


@by_controller(_refuse)
async def handle(request: ElectLeadersRequest, context: Context) -> ElectLeadersResponse:
    broker = context.broker
    wanted = None
    if request.topic_partitions is not None:
        wanted = tuple((topic.topic, index) for topic in request.topic_partitions for index in topic.partitions)
    elected = await broker.metadata.submit(ElectLeaders(request.election_type, wanted))
    await broker.replicas.usable()
    topics: dict[str, ReplicaElectionResult] = {}
    for partition in elected:
        result = PartitionResult(partition.partition)
        if partition.error:
            result.error_code, result.error_message = partition.error.code, partition.error.message
            broker.metrics.error(43, partition.error.code)
        topic = topics.setdefault(partition.topic, ReplicaElectionResult(partition.topic))
        topic.partition_result.append(result)
    return ElectLeadersResponse(replica_election_results=list(topics.values()))
