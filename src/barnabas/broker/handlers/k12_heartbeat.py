"""Heartbeat 0-4: a member of a classic group is alive, and learns whether it must join again.

- 3: static members (KIP-345).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


async def handle(request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
    try:
        response: HeartbeatResponse = await context.broker.groups.execute(
            request.group_id, lambda shard, token, now: shard.heartbeat(request, token, now)
        )
    except KafkaError as error:
        return HeartbeatResponse(error_code=error.code)
    return response
