"""What else a port may speak that gives no sensible answer to Kafka's first request: HTTP, or TLS.

Some servers answer such a request in their own protocol, and their name is plain; others wait for the end of a line, or
hang up without a word. Those are asked in their own words, on a connection for each.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.core.seams import Network, Socket

PROTOCOLS = {b"HTTP": "HTTP", b"\x15\x03": "TLS", b"\x16\x03": "TLS", b"SSH-": "SSH"}
"""How their answers begin; as the length of a frame each of them is far beyond any first answer."""
_LONGEST_START = 4
_ANSWER_SECONDS = 1.0


def protocol_of(first: bytes) -> str | None:
    """Whose first bytes these are; None for none that we know."""
    return next((name for start, name in PROTOCOLS.items() if first.startswith(start)), None)


async def protocol_at(network: Network, host: str, port: int) -> str | None:
    """The protocol that is spoken there, if it is one of ours to name."""
    for greeting in (b"GET / HTTP/1.0\r\n\r\n", _tls_greeting()):
        found = protocol_of(await _answer(network, host, port, greeting))
        if found is not None:
            return found
    return None


async def _answer(network: Network, host: str, port: int, greeting: bytes) -> bytes:
    """The first bytes that come back; none if nothing does."""
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            socket = await network.connect(host, port)
            try:
                readable = asyncio.Event()
                network.on_readable(socket, readable.set)
                socket.send(greeting)
                await readable.wait()
                return _received(socket)
            finally:
                network.on_readable(socket, None)
                socket.close()
    except OSError:
        return b""


def _received(socket: Socket) -> bytes:
    first = bytearray(_LONGEST_START)
    return bytes(first[: socket.recv_into(memoryview(first))])


def _tls_greeting() -> bytes:
    import ssl

    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()
