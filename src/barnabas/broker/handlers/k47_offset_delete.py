"""OffsetDelete 0: forget what a group has committed for topics that it no longer reads (KIP-496)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k47_offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


async def handle(request: OffsetDeleteRequest, context: Context) -> OffsetDeleteResponse:
    try:
        response: OffsetDeleteResponse = await context.broker.groups.execute(
            request.group_id, lambda shard, token, now: shard.offset_delete(request, token)
        )
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    return response
