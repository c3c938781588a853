"""Heartbeat 0-4: a member of a classic group is alive, and learns whether it must join again.

- 3: static members (KIP-345).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context, Later


def handle(request: HeartbeatRequest, context: Context) -> HeartbeatResponse | Later[HeartbeatResponse]:
    return context.broker.groups.answer(
        request.group_id,
        lambda shard, token, now: shard.heartbeat(request, token, now),
        lambda error: HeartbeatResponse(error_code=error.code),
    )
