"""DescribeConfigs: the configuration of topics, brokers and groups; null keys asks for all.

v1: sources and synonyms (KIP-226). v3: types and documentation (KIP-569).
"""

from __future__ import annotations

from barnabas.wire.schema import array, boolean, int8, int16, int32, request, response, string, struct


@struct
class DescribeConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(string, nullable="0+")


@request(key=32, versions="1-4", flexible="4+")
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean("3+")


@struct
class DescribeConfigsSynonym:
    name: str = string()
    value: str | None = string(nullable="0+")
    source: int = int8()


@struct
class DescribeConfigsResourceResult:
    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym)
    config_type: int = int8("3+")
    documentation: str | None = string("3+", nullable="0+")


@struct
class DescribeConfigsResult:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


@response(key=32, versions="1-4", flexible="4+")
class DescribeConfigsResponse:
    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
