"""JoinGroup: enter a group of the classic protocol, or say that one still wants to be in it.

v1: a rebalance time-out of its own. v4: the member id has to be fetched first (KIP-394). v5: static members (KIP-345).
v7: the response has the protocol type (KIP-559). v8: the reason (KIP-800). v9: the leader may skip the assignment
(KIP-814).
"""

from __future__ import annotations

from barnabas.wire.schema import Buffer, array, boolean, bytes_, int16, int32, request, response, string, struct


@struct
class JoinGroupRequestProtocol:
    name: str = string()
    metadata: Buffer = bytes_()


@request(key=11, versions="0-9", flexible="6+")
class JoinGroupRequest:
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="0+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="0+", default=None)


@struct
class JoinGroupResponseMember:
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="0+", default=None)
    metadata: Buffer = bytes_()


@response(key=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    throttle_time_ms: int = int32("2+")
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="0+", default=None)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
