"""DescribeGroups: state and members of classic groups.

v3: authorized operations (KIP-430). v4: instance ids (KIP-345). v6: GROUP_ID_NOT_FOUND instead of a dead group
(KIP-1043).
"""

from __future__ import annotations

from barnabas.wire.schema import Buffer, array, boolean, bytes_, int16, int32, request, response, string, struct


@request(key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean("3+")


@struct
class DescribedGroupMember:
    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    member_metadata: Buffer = bytes_()
    member_assignment: Buffer = bytes_()


@struct
class DescribedGroup:
    error_code: int = int16()
    error_message: str | None = string("6+", nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-2147483648)


@response(key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: int = int32("1+")
    groups: list[DescribedGroup] = array(DescribedGroup)
