"""LeaveGroup 0-5: members leave a group, which rebalances without waiting for their session to end.

- 3: several members at once, static ones by instance id (KIP-345).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context, Later


def handle(request: LeaveGroupRequest, context: Context) -> LeaveGroupResponse | Later[LeaveGroupResponse]:
    return context.broker.groups.answer(
        request.group_id,
        lambda shard, token, now: shard.leave_group(request, context.version, token, now),
        lambda error: LeaveGroupResponse(error_code=error.code),
    )
