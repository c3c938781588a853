"""LeaveGroup 0-5: members leave a group, which rebalances without waiting for their session to end.

- 3: several members at once, static ones by instance id (KIP-345).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


async def handle(request: LeaveGroupRequest, context: Context) -> LeaveGroupResponse:
    try:
        response: LeaveGroupResponse = await context.broker.groups.execute(
            request.group_id, lambda shard, token, now: shard.leave_group(request, context.version, token, now)
        )
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
    return response
