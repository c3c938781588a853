"""ListGroups 0-5: the groups whose coordinator this broker is.

- 4: by state (KIP-518). 5: by type (KIP-848).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


async def handle(request: ListGroupsRequest, context: Context) -> ListGroupsResponse:
    response = ListGroupsResponse()
    for driver in context.broker.groups.drivers():
        try:
            if await driver.ready():
                response.groups += await driver.execute(
                    lambda shard, token, now: shard.list_groups(request.states_filter, request.types_filter, token)
                )
        except KafkaError as error:
            return ListGroupsResponse(error_code=error.code)
    return response
