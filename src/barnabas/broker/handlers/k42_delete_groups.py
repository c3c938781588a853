"""DeleteGroups 0-2: groups without members go, and their offsets with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k42_delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


async def handle(request: DeleteGroupsRequest, context: Context) -> DeleteGroupsResponse:
    response = DeleteGroupsResponse()
    for group_id in dict.fromkeys(request.groups_names):
        try:
            response.results += await _delete(group_id, context)
        except KafkaError as error:
            response.results.append(DeletableGroupResult(group_id, error.code))
    return response


async def _delete(group_id: str, context: Context) -> list[DeletableGroupResult]:
    deleted: list[DeletableGroupResult] = await context.broker.groups.execute(
        group_id, lambda shard, token, now: shard.delete_groups([group_id], token, now)
    )
    return deleted
