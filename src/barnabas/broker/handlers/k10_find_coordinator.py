"""FindCoordinator 0-6: answered honestly, which until groups and transactions are served means: none is available.

- 3: tagged fields. 4: several keys in one request (KIP-699).

COORDINATOR_NOT_AVAILABLE is retriable: a client waits rather than taking its group for broken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k10_find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context

_WHY = "this broker does not serve consumer groups and transactions yet; consume by assigned partitions"


def handle(request: FindCoordinatorRequest, context: Context) -> FindCoordinatorResponse:
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if context.version < 4:
        return FindCoordinatorResponse(error_code=code, error_message=_WHY, node_id=-1, host="", port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=_WHY)
            for key in request.coordinator_keys
        ]
    )
