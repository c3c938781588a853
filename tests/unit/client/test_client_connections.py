"""A client that cannot reach a broker says where, why, and what to do; it never hangs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from barnabas.client.client import connect
from barnabas.client.connections import Address, Connections, parse_addresses
from barnabas.client.errors import CannotReach
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.net.channel import ChannelClosed, ClosedUnheard, NotKafka
from barnabas.wire.messages.k18_api_versions import ApiVersionsRequest
from tests.peers import free_port

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost", [Address("localhost", 9092)]),
        ("a:1,b:2", [Address("a", 1), Address("b", 2)]),
        (" a:1 , b ", [Address("a", 1), Address("b", 9092)]),
        ("[::1]:9093", [Address("::1", 9093)]),
        ("[::1]", [Address("::1", 9092)]),
    ],
)
def test_addresses_are_read(text: str, addresses: list[Address]) -> None:
    assert parse_addresses(text) == addresses


@pytest.mark.parametrize("text", ["", ",", ":9092", "host:", "host:port", "host:0", "host:70000", "http://host:9092"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_addresses(text)


def test_an_ipv6_address_is_written_in_brackets() -> None:
    assert str(Address("::1", 9092)) == "[::1]:9092"
    assert str(Address("localhost", 9092)) == "localhost:9092"


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[int]:
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


async def fail_to_connect(bootstrap: str, connect_timeout_ms: int = 10_000) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        async with asyncio.timeout(10), connect(bootstrap, connect_timeout_ms=connect_timeout_ms):
            pass
    return caught.value


def fail_on(handler: Handler, connect_timeout_ms: int = 10_000) -> tuple[str, KafkaError]:
    """The address of a server with this behaviour, and what a client says about it."""

    async def attempt() -> tuple[str, KafkaError]:
        async with serving(handler) as port:
            address = f"127.0.0.1:{port}"
            return address, await fail_to_connect(address, connect_timeout_ms)

    return asyncio.run(attempt())


def test_nobody_listening_is_told_with_the_address_and_a_question() -> None:
    address = f"127.0.0.1:{free_port()}"
    error = asyncio.run(fail_to_connect(address))
    assert str(error) == f"cannot reach broker at {address}: connection refused; is it running?"
    assert error.code is ErrorCode.NETWORK_EXCEPTION
    assert error.code.retriable


@pytest.mark.parametrize(
    ("cause", "may_be"),
    [
        (ConnectionRefusedError(), False),
        (TimeoutError(), False),
        (ClosedUnheard("closed"), False),
        (NotKafka("HTTP"), False),
        (ChannelClosed("closed"), True),
    ],
)
def test_only_a_connection_that_was_open_may_have_carried_a_request(cause: Exception, may_be: bool) -> None:
    assert CannotReach("broker 1", cause).may_be_carried_out is may_be


@pytest.mark.parametrize(
    ("answer", "protocol"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS"),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", "SSH"),
    ],
)
def test_another_protocol_is_named_at_once_and_is_not_worth_a_retry(answer: bytes, protocol: str) -> None:
    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(answer)
        await reader.read()  # it would wait for more
        writer.close()

    address, error = fail_on(other)
    expected = (
        f"cannot reach broker at {address}: {address} speaks {protocol}, not Kafka's protocol; is the port right?"
    )
    assert str(error) == expected
    assert not error.retriable


def test_a_port_that_closes_before_its_first_answer_may_want_tls() -> None:
    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    address, error = fail_on(close)
    assert f"cannot reach broker at {address}" in str(error)
    assert "before its first answer; does that port expect TLS, or is the broker stopping?" in str(error)
    assert error.retriable


def test_a_port_that_never_answers_is_given_up_in_time() -> None:
    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    address, error = fail_on(silence, connect_timeout_ms=200)
    assert f"cannot reach broker at {address}: no answer in time" in str(error)


def test_the_first_of_several_failures_is_told() -> None:
    first, second = free_port(), free_port()
    error = asyncio.run(fail_to_connect(f"127.0.0.1:{first},127.0.0.1:{second}"))
    assert f":{first}" in str(error)


def test_who_asks_while_the_connections_are_closed_does_not_wait_for_one_that_is_cancelled() -> None:
    class Network:
        """Its first connection never comes, the others are refused."""

        connects = 0

        async def connect(self, host: str, port: int) -> Any:
            self.connects += 1
            if self.connects > 1:
                raise ConnectionRefusedError
            await asyncio.Event().wait()

    async def story() -> None:
        network: Any = Network()
        connections = Connections(network, "test", 10_000, 10_000)

        async def ask() -> None:
            await connections.request(Address("a", 1), ApiVersionsRequest())

        first = asyncio.ensure_future(ask())
        await asyncio.sleep(0.01)
        closing = asyncio.ensure_future(connections.close())
        await asyncio.sleep(0)
        with pytest.raises(KafkaError, match="connection refused"):
            await ask()
        await closing
        with pytest.raises(asyncio.CancelledError):
            await first

    asyncio.run(asyncio.wait_for(story(), 10))
