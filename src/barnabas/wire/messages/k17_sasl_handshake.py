"""SaslHandshake: choose the SASL mechanism.

v1: the tokens that follow are SaslAuthenticate requests rather than bare bytes (KIP-152).
"""

from __future__ import annotations

from barnabas.wire.schema import array, int16, request, response, string


@request(key=17, versions="0-1", flexible="none")
class SaslHandshakeRequest:
    mechanism: str = string()


@response(key=17, versions="0-1", flexible="none")
class SaslHandshakeResponse:
    error_code: int = int16()
    mechanisms: list[str] = array(string)
