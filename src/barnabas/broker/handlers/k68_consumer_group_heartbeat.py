"""ConsumerGroupHeartbeat 0-1: join, stay in and leave a group whose partitions the coordinator assigns (KIP-848).

- 1: subscription by a pattern, and a member id that the member chooses itself (KIP-1082).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context, Later


def handle(
    request: ConsumerGroupHeartbeatRequest, context: Context
) -> ConsumerGroupHeartbeatResponse | Later[ConsumerGroupHeartbeatResponse]:
    return context.broker.groups.answer(
        request.group_id,
        lambda shard, token, now: shard.consumer_group_heartbeat(
            request, context.version, context.client_id or "", context.client_host, token, now
        ),
        lambda error: ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message or None),
    )
