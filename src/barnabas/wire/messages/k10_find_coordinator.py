"""FindCoordinator: which broker is in charge of a group (key type 0), a transactional id (1) or a share partition (2).

v4: several keys at once (KIP-699), which moves the answers into a list. v6: share groups (KIP-932).
"""

from __future__ import annotations

from barnabas.wire.schema import array, int8, int16, int32, request, response, string, struct


@request(key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(string, "4+")


@struct
class Coordinator:
    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@response(key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="0+")
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")
