"""DescribeGroups 0-6: state, protocol and members of classic groups.

- 3: authorized operations. 6: GROUP_ID_NOT_FOUND for a group that is not there, instead of a dead one (KIP-1043).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.authorized import GROUP_OPERATIONS
from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k15_describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


async def handle(request: DescribeGroupsRequest, context: Context) -> DescribeGroupsResponse:
    response = DescribeGroupsResponse()
    for group_id in request.groups:
        group = await _describe(group_id, context)
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = GROUP_OPERATIONS
        response.groups.append(group)
    return response


async def _describe(group_id: str, context: Context) -> DescribedGroup:
    try:
        described: list[DescribedGroup] = await context.broker.groups.execute(
            group_id, lambda shard, token, now: shard.describe_groups([group_id], context.version, token)
        )
    except KafkaError as error:
        return DescribedGroup(error_code=error.code, group_id=group_id)
    return described[0]
