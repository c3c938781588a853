"""AlterPartition: a leader proposes a change of the ISR to the controller (KIP-497).

v2: topic ids (KIP-841). v3: each member with its broker epoch, so that a restarted one is found out (KIP-903).
"""

from __future__ import annotations

from barnabas.wire.schema import array, int8, int16, int32, int64, request, response, struct, uuid


@struct
class BrokerState:
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


@struct
class RequestPartitionData:
    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: list[int] = array(int32, "0-2")
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+")
    leader_recovery_state: int = int8()
    partition_epoch: int = int32()


@struct
class RequestTopicData:
    topic_id: bytes = uuid()
    partitions: list[RequestPartitionData] = array(RequestPartitionData)


@request(key=56, versions="2-3", flexible="0+")
class AlterPartitionRequest:
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[RequestTopicData] = array(RequestTopicData)


@struct
class ResponsePartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    leader_recovery_state: int = int8()
    partition_epoch: int = int32()


@struct
class ResponseTopicData:
    topic_id: bytes = uuid()
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData)


@response(key=56, versions="2-3", flexible="0+")
class AlterPartitionResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[ResponseTopicData] = array(ResponseTopicData)
