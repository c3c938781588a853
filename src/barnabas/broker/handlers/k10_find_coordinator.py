"""FindCoordinator 0-6: the broker that leads the partition to which a group or transactional id belongs.

The internal topic is made when it is first asked for. Until its partition has a leader the answer is
COORDINATOR_NOT_AVAILABLE, which is retriable.

- 1: transactional ids, by key type. 3: tagged fields. 4: several keys in one request (KIP-699). Share groups (6) are
  not served: INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k10_find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from barnabas.broker import coordinators
    from barnabas.broker.dispatch import Context

_GROUP, _TRANSACTION = 0, 1
_FIRST_VERSION_WITH_KEYS = 4


async def handle(request: FindCoordinatorRequest, context: Context) -> FindCoordinatorResponse:
    if context.version < _FIRST_VERSION_WITH_KEYS:
        found = await _find(request.key, request.key_type, context)
        return FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    return FindCoordinatorResponse(
        coordinators=[await _find(key, request.key_type, context) for key in request.coordinator_keys]
    )


async def _find(key: str, key_type: int, context: Context) -> Coordinator:
    try:
        coordinator = _coordinator(key_type, context)
        await coordinator.ensure_topic()
        image = context.broker.metadata.image
        partition = image.partition(coordinator.topic, coordinator.partition_for(key))
        leader = None if partition is None else image.brokers.get(partition.leader)
        endpoint = None if leader is None else leader.endpoint(context.listener)
        if leader is None or endpoint is None:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{coordinator.topic} has no leader for it at present"
            )
    except KafkaError as error:
        return Coordinator(key, -1, "", -1, error.code, error.message or None)
    return Coordinator(key, leader.id, endpoint.host, endpoint.port, ErrorCode.NONE, None)


def _coordinator(key_type: int, context: Context) -> coordinators.Coordinator[Any]:
    if key_type == _GROUP:
        return context.broker.groups
    if key_type == _TRANSACTION:
        return context.broker.transactions
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no coordinator of type {key_type}")
