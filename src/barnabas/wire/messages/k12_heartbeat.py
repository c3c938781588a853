"""Heartbeat: a member of a classic group is alive, and learns of a rebalance.

v3: static members (KIP-345).
"""

from __future__ import annotations

from barnabas.wire.schema import int16, int32, request, response, string


@request(key=12, versions="0-4", flexible="4+")
class HeartbeatRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="0+", default=None)


@response(key=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
