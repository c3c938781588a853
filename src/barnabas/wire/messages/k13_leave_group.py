"""LeaveGroup: a member leaves, or is removed by an administrator.

v3: several members at once, static ones by instance id (KIP-345). v5: the reason (KIP-800).
"""

from __future__ import annotations

from barnabas.wire.schema import array, int16, int32, request, response, string, struct


@struct
class MemberIdentity:
    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+", default=None)
    reason: str | None = string("5+", nullable="0+", default=None)


@request(key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


@struct
class MemberResponse:
    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+")
    error_code: int = int16()


@response(key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")
