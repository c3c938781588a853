"""AlterPartition 3: leaders ask the controller for other in-sync replicas, for many partitions at once.

Believed only on the inter-broker listener, from a broker under its current epoch. All of it joins one append.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.broker.between_brokers import refusal
from barnabas.cluster.events import AlterPartition
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k56_alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.broker.dispatch import Context


async def handle(request: AlterPartitionRequest, context: Context) -> AlterPartitionResponse:
    broker = context.broker
    error = refusal(context) or _problem(request, broker)
    if error:
        return AlterPartitionResponse(error_code=error)
    answers = await asyncio.gather(
        *(
            _alter(
                AlterPartition(
                    request.broker_id,
                    request.broker_epoch,
                    topic.topic_id,
                    partition.partition_index,
                    partition.leader_epoch,
                    partition.partition_epoch,
                    tuple((member.broker_id, member.broker_epoch) for member in partition.new_isr_with_epochs),
                    partition.leader_recovery_state,
                ),
                broker,
            )
            for topic in request.topics
            for partition in topic.partitions
        )
    )
    results = iter(answers)
    return AlterPartitionResponse(
        topics=[
            ResponseTopicData(topic.topic_id, [_numbered(partition, next(results)) for partition in topic.partitions])
            for topic in request.topics
        ]
    )


def _problem(request: AlterPartitionRequest, broker: Broker) -> ErrorCode:
    if not broker.metadata.is_controller:
        return ErrorCode.NOT_CONTROLLER
    registration = broker.metadata.image.brokers.get(request.broker_id)
    is_current = registration is not None and registration.epoch == request.broker_epoch
    return ErrorCode.NONE if is_current else ErrorCode.STALE_BROKER_EPOCH


async def _alter(event: AlterPartition, broker: Broker) -> ResponsePartitionData:
    try:
        altered = await broker.controller.decide(event)
    except KafkaError as error:
        return ResponsePartitionData(error_code=error.code)
    return ResponsePartitionData(
        leader_id=altered.leader,
        leader_epoch=altered.leader_epoch,
        isr=list(altered.isr),
        leader_recovery_state=altered.leader_recovery_state,
        partition_epoch=altered.partition_epoch,
    )


def _numbered(asked: RequestPartitionData, result: ResponsePartitionData) -> ResponsePartitionData:
    result.partition_index = asked.partition_index
    return result
