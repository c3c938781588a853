"""Metadata: brokers, controller, topics, partitions and their leaders.

No topics means all of them in v0, none from v1 on, where null means all. v4: creation of topics can be declined. v7:
leader epochs. v8: authorized operations (KIP-430), those of the cluster only until v10. v10: topic ids, by which a
request may ask from v12 on (KIP-516). v13: an error for the response as a whole, which can tell a client to start over
(KIP-1102).
"""

from __future__ import annotations

from barnabas.wire.schema import array, boolean, int16, int32, request, response, string, struct, uuid


@struct
class MetadataRequestTopic:
    topic_id: bytes = uuid("10+")
    name: str | None = string(nullable="10+")


@request(key=3, versions="0-13", flexible="9+")
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


@struct
class MetadataResponseBroker:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("1+", nullable="0+", default=None)


@struct
class MetadataResponsePartition:
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, "5+")


@struct
class MetadataResponseTopic:
    error_code: int = int16()
    name: str | None = string(nullable="12+")
    topic_id: bytes = uuid("10+")
    is_internal: bool = boolean("1+")
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=-2147483648)


@response(key=3, versions="0-13", flexible="9+")
class MetadataResponse:
    throttle_time_ms: int = int32("3+")
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="0+", default=None)
    controller_id: int = int32("1+", default=-1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=-2147483648)
    error_code: int = int16("13+")
