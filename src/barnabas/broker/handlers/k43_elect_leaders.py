"""ElectLeaders 0-2: preferred leaders, or from version 1 any that live, for some partitions or for all (KIP-460)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.forwarding import by_controller
from barnabas.cluster.events import ElectLeaders
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


@by_controller
async def handle(request: ElectLeadersRequest, context: Context) -> ElectLeadersResponse:
    broker = context.broker
    wanted = None
    if request.topic_partitions is not None:
        wanted = tuple((topic.topic, index) for topic in request.topic_partitions for index in topic.partitions)
    try:
        elected = await broker.metadata.submit(ElectLeaders(request.election_type, wanted))
    except KafkaError as error:
        if error.code is ErrorCode.NOT_CONTROLLER:
            raise
        return ElectLeadersResponse(error_code=error.code)
    await broker.replicas.settled()
    topics: dict[str, ReplicaElectionResult] = {}
    for partition in elected:
        result = PartitionResult(partition.partition)
        if partition.error:
            result.error_code, result.error_message = partition.error.code, partition.error.message
            broker.metrics.error(43, partition.error.code)
        topic = topics.setdefault(partition.topic, ReplicaElectionResult(partition.topic))
        topic.partition_result.append(result)
    return ElectLeadersResponse(replica_election_results=list(topics.values()))
