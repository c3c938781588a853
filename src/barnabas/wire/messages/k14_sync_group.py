"""SyncGroup: the leader hands in the assignment, and every member gets its part.

v3: static members (KIP-345). v5: protocol type and name, so that a mismatch is found out (KIP-559).
"""

from __future__ import annotations

from barnabas.wire.schema import Buffer, array, bytes_, int16, int32, request, response, string, struct


@struct
class SyncGroupRequestAssignment:
    member_id: str = string()
    assignment: Buffer = bytes_()


@request(key=14, versions="0-5", flexible="4+")
class SyncGroupRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="0+", default=None)
    protocol_type: str | None = string("5+", nullable="0+", default=None)
    protocol_name: str | None = string("5+", nullable="0+", default=None)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@response(key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="0+", default=None)
    protocol_name: str | None = string("5+", nullable="0+", default=None)
    assignment: Buffer = bytes_()
