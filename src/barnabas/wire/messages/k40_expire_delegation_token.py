"""ExpireDelegationToken: let a token end sooner, or at once (KIP-48)."""

from __future__ import annotations

from barnabas.wire.schema import Buffer, bytes_, int16, int32, int64, request, response


@request(key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenRequest:
    hmac: Buffer = bytes_()
    expiry_time_period_ms: int = int64()


@response(key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenResponse:
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
