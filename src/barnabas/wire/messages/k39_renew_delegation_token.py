"""RenewDelegationToken: let a token live longer (KIP-48)."""

from __future__ import annotations

from barnabas.wire.schema import Buffer, bytes_, int16, int32, int64, request, response


@request(key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenRequest:
    hmac: Buffer = bytes_()
    renew_period_ms: int = int64()


@response(key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenResponse:
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
