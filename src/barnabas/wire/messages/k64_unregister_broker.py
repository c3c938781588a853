"""UnregisterBroker: forget a broker that is gone for good."""

from __future__ import annotations

from barnabas.wire.schema import int16, int32, request, response, string


@request(key=64, versions="0", flexible="0+")
class UnregisterBrokerRequest:
    broker_id: int = int32()


@response(key=64, versions="0", flexible="0+")
class UnregisterBrokerResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
