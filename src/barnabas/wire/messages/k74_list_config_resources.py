"""ListConfigResources: the resources that have a configuration of their own.

v0: those of client metrics only (KIP-714). v1: all types (KIP-1142).
"""

from __future__ import annotations

from barnabas.wire.schema import array, int8, int16, int32, request, response, string, struct


@request(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    resource_types: list[int] = array(int8, "1+")


@struct
class ConfigResource:
    resource_name: str = string()
    resource_type: int = int8("1+", default=16)


@response(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
