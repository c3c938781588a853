"""Brokers that are not there, go away, or are something else: the error says where, why and what to do."""

from __future__ import annotations

import asyncio
import re
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from barnabas import Admin, Consumer, KafkaError, Producer, TopicPartition
from tests.peers import BarnabasServer, free_port

CLIENTS: dict[str, Callable[[str], Any]] = {
    "producer": Producer,
    "consumer": Consumer,
    "group": lambda address: Consumer(address, topics=["orders"], group="workers"),
    "admin": Admin,
}
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def enter(client: Any) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        async with asyncio.timeout(60), client:
            pass
    return caught.value


@pytest.mark.parametrize("client", CLIENTS)
def test_a_broker_that_is_down_at_the_start_is_told_at_once(client: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    error = asyncio.run(enter(CLIENTS[client](address)))
    assert str(error) == f"cannot reach broker at {address}: connection refused; is it running?"
    assert error.retriable


def test_one_living_broker_among_dead_ones_is_enough(cluster: str, topic_name: str) -> None:
    async def work() -> int:
        async with asyncio.timeout(60), Producer(f"127.0.0.1:{free_port()},{cluster}") as producer:
            return (await producer.send(topic_name, b"there")).offset

    assert asyncio.run(work()) == 0


def test_a_broker_that_dies_under_a_producer_is_named_with_its_number(tmp_path: Path) -> None:
    server = BarnabasServer(tmp_path / "data", {"node.id": "2"})
    told = re.escape(f"cannot reach broker 2 at {server.address}: connection refused; is it running?")

    async def work() -> None:
        async with asyncio.timeout(60):
            producer = await Producer(server.address, delivery_timeout_ms=5000, request_timeout_ms=4000).__aenter__()
            await producer.send("orders", b"there")
            server.kill()
            with pytest.raises(KafkaError, match=told) as caught:
                await producer.send("orders", b"not there")
            assert caught.value.retriable
            lost = producer.post("orders", b"not there either")
            with pytest.raises(KafkaError, match=f"1 record was not delivered.*{told}"):
                await producer.flush()
            with pytest.raises(KafkaError, match=told):
                await lost
            await producer.__aexit__(LookupError)

    try:
        asyncio.run(work())
    finally:
        server.kill()


def test_a_consumer_waits_for_a_broker_that_comes_back(tmp_path: Path) -> None:
    """A poll in between gives nothing, as if there were no records; the log tells what is the matter."""
    port = free_port()
    servers = [BarnabasServer(tmp_path / "data", port=port)]

    def revive() -> None:
        servers.append(BarnabasServer(tmp_path / "data", port=port))

    async def work() -> list[bytes]:
        address = servers[0].address
        async with asyncio.timeout(50):
            async with Consumer(address, auto_offset_reset="earliest", request_timeout_ms=2000) as consumer:
                async with Producer(address) as producer:
                    await producer.send("orders", b"before")
                consumer.assign([TopicPartition("orders", 0)])
                found = [record.value for record in await consumer.poll(timeout_ms=10_000)]
                servers[0].kill()
                assert await consumer.poll(timeout_ms=300) == []
                await asyncio.to_thread(revive)
                async with Producer(address) as producer:
                    await producer.send("orders", b"after")
                while len(found) < 2:
                    found += [record.value for record in await consumer.poll(timeout_ms=1000)]
                return found

    try:
        assert asyncio.run(work()) == [b"before", b"after"]
    finally:
        servers[-1].stop()


class _Greeter(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_port_that_speaks_http_is_named() -> None:
    with HTTPServer(("127.0.0.1", 0), _Greeter) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            address = f"127.0.0.1:{server.server_port}"
            error = asyncio.run(enter(Consumer(address, connect_timeout_ms=500)))  # it waits for the end of a line
        finally:
            server.shutdown()
            serving.join(60)
    assert (
        str(error)
        == f"cannot reach broker at {address}: {address} speaks HTTP, not Kafka's protocol; is the port right?"
    )
    assert not error.retriable


def test_a_port_that_wants_tls_is_named(tmp_path: Path) -> None:
    context = _tls_context(tmp_path)

    async def work() -> tuple[str, KafkaError]:
        async def never(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        async with _serving(never, context) as address:
            return address, await enter(Producer(address))

    address, error = asyncio.run(work())
    assert (
        str(error)
        == f"cannot reach broker at {address}: {address} speaks TLS, not Kafka's protocol; is the port right?"
    )
    assert not error.retriable


@asynccontextmanager
async def _serving(talk: Talk, context: ssl.SSLContext) -> AsyncIterator[str]:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # a failed handshake is what is wanted here
    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


def _tls_context(directory: Path) -> ssl.SSLContext:
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-keyout", str(key), "-out", str(certificate), "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*command, *names], check=True, capture_output=True, timeout=30)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context
