"""DescribeProducers 0: the producers that a partition remembers, with sequence and open transaction (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


def handle(request: DescribeProducersRequest, context: Context) -> DescribeProducersResponse:
    response = DescribeProducersResponse()
    for topic in request.topics:
        results = TopicResponse(topic.name)
        response.topics.append(results)
        for index in topic.partition_indexes:
            result = PartitionResponse(index)
            results.partitions.append(result)
            try:
                partition = context.broker.replicas.get(topic.name, index)
                partition.check_leader()
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message or None
                context.broker.metrics.error(61, error.code)
                continue
            result.active_producers = [
                ProducerState(
                    entry.producer_id,
                    entry.epoch,
                    entry.last_sequence,
                    entry.last_timestamp,
                    entry.coordinator_epoch,
                    entry.current_txn_first_offset,
                )
                for entry in partition.log.producers.entries.values()
            ]
    return response
