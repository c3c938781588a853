"""ConsumerGroupDescribe 0-1: members, epochs and assignments of groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.authorized import GROUP_OPERATIONS
from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k69_consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


async def handle(request: ConsumerGroupDescribeRequest, context: Context) -> ConsumerGroupDescribeResponse:
    response = ConsumerGroupDescribeResponse()
    for group_id in request.group_ids:
        response.groups.append(await _describe(group_id, context))
    if request.include_authorized_operations:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return response


async def _describe(group_id: str, context: Context) -> DescribedGroup:
    try:
        described: list[DescribedGroup] = await context.broker.groups.execute(
            group_id, lambda shard, token, now: shard.consumer_group_describe([group_id], token)
        )
    except KafkaError as error:
        return DescribedGroup(error_code=error.code, error_message=error.message or None, group_id=group_id)
    return described[0]
