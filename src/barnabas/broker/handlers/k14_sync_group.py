"""SyncGroup 0-5: the leader hands in the assignments, every member gets its own.

- 3: static members (KIP-345). 5: protocol type and name are compared, and must be there (KIP-559).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context, Later


KEEPS_REQUEST = True


def handle(request: SyncGroupRequest, context: Context) -> SyncGroupResponse | Later[SyncGroupResponse]:
    if context.version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return context.broker.groups.answer(
        request.group_id,
        lambda shard, token, now: shard.sync_group(request, token, now),
        lambda error: SyncGroupResponse(error_code=error.code),
    )
