"""ListGroups: the groups that this broker coordinates.

v4: by state (KIP-518). v5: by type (KIP-848).
"""

from __future__ import annotations

from barnabas.wire.schema import array, int16, int32, request, response, string, struct


@request(key=16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")


@struct
class ListedGroup:
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+")
    group_type: str = string("5+")


@response(key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
