"""JoinGroup 0-9: become a member of a group; answered when the group's next generation is complete.

- 4: a member id is given first (KIP-394). 5: static members (KIP-345). 9: the leader may skip the assignment (KIP-814).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context, Later


KEEPS_REQUEST = True


def handle(request: JoinGroupRequest, context: Context) -> JoinGroupResponse | Later[JoinGroupResponse]:
    return context.broker.groups.answer(
        request.group_id,
        lambda shard, token, now: shard.join_group(
            request, context.version, context.client_id or "", context.client_host, token, now
        ),
        lambda error: JoinGroupResponse(error_code=error.code, member_id=request.member_id),
    )
