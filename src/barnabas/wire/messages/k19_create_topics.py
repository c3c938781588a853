"""CreateTopics: with a number of partitions and replicas, or a manual assignment.

v4: -1 asks for the broker's default of either (KIP-464). v5: the response has the configuration (KIP-525). v6:
creation may be throttled (KIP-599). v7: topic ids (KIP-516).
"""

from __future__ import annotations

from barnabas.wire.schema import array, boolean, int8, int16, int32, request, response, string, struct, uuid


@struct
class CreatableReplicaAssignment:
    partition_index: int = int32()
    broker_ids: list[int] = array(int32)


@struct
class CreatableTopicConfig:
    name: str = string()
    value: str | None = string(nullable="0+")


@struct
class CreatableTopic:
    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


@request(key=19, versions="2-7", flexible="5+")
class CreateTopicsRequest:
    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean()


@struct
class CreatableTopicConfigs:
    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()


@struct
class CreatableTopicResult:
    name: str = string()
    topic_id: bytes = uuid("7+")
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topic_config_error_code: int = int16("5+", tag=0, tagged="5+")
    num_partitions: int = int32("5+", default=-1)
    replication_factor: int = int16("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, "5+", nullable="0+")


@response(key=19, versions="2-7", flexible="5+")
class CreateTopicsResponse:
    throttle_time_ms: int = int32()
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
