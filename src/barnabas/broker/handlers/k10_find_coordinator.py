"""FindCoordinator 0-6: the broker that leads the partition to which a group or transactional id belongs.

The internal topic is made when it is first asked for. Until its partition has a leader the answer is
COORDINATOR_NOT_AVAILABLE, which is retriable.

- 1: transactional ids, by key type. 3: tagged fields. 4: several keys in one request (KIP-699). Share groups (6) are
  not served: INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k10_find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from barnabas.broker import coordinators
    from barnabas.broker.dispatch import Context

_GROUP, _TRANSACTION = 0, 1
_FIRST_VERSION_WITH_KEYS = 4


def handle(
    request: FindCoordinatorRequest, context: Context
) -> FindCoordinatorResponse | Coroutine[Any, Any, FindCoordinatorResponse]:
    broker = context.broker
    by_type: dict[int, coordinators.Coordinator[Any]] = {_GROUP: broker.groups, _TRANSACTION: broker.transactions}
    coordinator = by_type.get(request.key_type)
    if coordinator is None:
        problem = KafkaError(ErrorCode.INVALID_REQUEST, f"there is no coordinator of type {request.key_type}")
        return _response(context, [_refused(key, problem) for key in _keys(request, context)])
    if coordinator.has_topic:
        return _find(coordinator, request, context)
    return _make_topic_and_find(coordinator, request, context)


async def _make_topic_and_find(
    coordinator: coordinators.Coordinator[Any], request: FindCoordinatorRequest, context: Context
) -> FindCoordinatorResponse:
    try:
        await coordinator.ensure_topic()
    except KafkaError as error:
        return _response(context, [_refused(key, error) for key in _keys(request, context)])
    return _find(coordinator, request, context)


def _find(
    coordinator: coordinators.Coordinator[Any], request: FindCoordinatorRequest, context: Context
) -> FindCoordinatorResponse:
    image = context.broker.metadata.image
    found = []
    for key in _keys(request, context):
        partition = image.partition(coordinator.topic, coordinator.partition_for(key))
        leader = None if partition is None else image.brokers.get(partition.leader)
        endpoint = None if leader is None else leader.endpoint(context.listener)
        if leader is None or endpoint is None:
            problem = f"{coordinator.topic} has no leader for it at present"
            found.append(_refused(key, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, problem)))
        else:
            found.append(Coordinator(key, leader.id, endpoint.host, endpoint.port, ErrorCode.NONE, None))
    return _response(context, found)


def _keys(request: FindCoordinatorRequest, context: Context) -> list[str]:
    return [request.key] if context.version < _FIRST_VERSION_WITH_KEYS else request.coordinator_keys


def _refused(key: str, problem: KafkaError) -> Coordinator:
    return Coordinator(key, -1, "", -1, problem.code, problem.message or None)


def _response(context: Context, found: list[Coordinator]) -> FindCoordinatorResponse:
    if context.version >= _FIRST_VERSION_WITH_KEYS:
        return FindCoordinatorResponse(coordinators=found)
    (only,) = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )
