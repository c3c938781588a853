"""SaslAuthenticate: one token of a SASL exchange.

v1: how long the session lasts before it has to be renewed (KIP-368).
"""

from __future__ import annotations

from barnabas.wire.schema import Buffer, bytes_, int16, int64, request, response, string


@request(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    auth_bytes: Buffer = bytes_()


@response(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: Buffer = bytes_()
    session_lifetime_ms: int = int64("1+")
