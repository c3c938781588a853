"""BrokerHeartbeat: a broker is alive, wishes to be unfenced or to shut down, and learns whether it may (KIP-631).

v1: offline directories (KIP-858). v2: cordoned ones (KIP-1066).
"""

from __future__ import annotations

from barnabas.wire.schema import array, boolean, int16, int32, int64, request, response, uuid


@request(key=63, versions="0-2", flexible="0+")
class BrokerHeartbeatRequest:
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    current_metadata_offset: int = int64()
    want_fence: bool = boolean()
    want_shut_down: bool = boolean()
    offline_log_dirs: list[bytes] = array(uuid, "1+", tag=0, tagged="1+")
    cordoned_log_dirs: list[bytes] | None = array(uuid, "2+", nullable="0+", default=None, tag=1, tagged="2+")


@response(key=63, versions="0-2", flexible="0+")
class BrokerHeartbeatResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    is_caught_up: bool = boolean()
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean()
