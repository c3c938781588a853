"""BrokerRegistration: a broker comes up and asks the controller for an epoch (KIP-631).

v2: log directories (KIP-858). v3: the previous epoch, if the broker stopped cleanly (KIP-966). v4: features may begin
at 0.
"""

from __future__ import annotations

from barnabas.wire.schema import array, boolean, int16, int32, int64, request, response, string, struct, uint16, uuid


@struct
class Listener:
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


@struct
class Feature:
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@request(key=62, versions="0-4", flexible="0+")
class BrokerRegistrationRequest:
    broker_id: int = int32()
    cluster_id: str = string()
    incarnation_id: bytes = uuid()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)
    rack: str | None = string(nullable="0+")
    is_migrating_zk_broker: bool = boolean("1+")
    log_dirs: list[bytes] = array(uuid, "2+")
    previous_broker_epoch: int = int64("3+", default=-1)


@response(key=62, versions="0-4", flexible="0+")
class BrokerRegistrationResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    broker_epoch: int = int64(default=-1)
