"""From a frame to a handler and back: every kind of handler, every kind of mistake, and whose fault it was."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.broker import handlers
from barnabas.broker.dispatch import Context, Dispatcher, Later
from barnabas.broker.metrics import Metrics
from barnabas.cluster.image import EMPTY
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.net.server import Limits, Server
from barnabas.net.sockets import TcpNetwork
from barnabas.wire.compiler import codec
from barnabas.wire.headers import decode_response_header, encode_request_header
from barnabas.wire.messages.k02_list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.unit.net.peer import HOST, HandClock, Peer, run

LIST_OFFSETS, VERSION = 2, 5
Handler = Callable[[Any, Context], Any]


def encoded(message: Any, key: int, version: int, correlation_id: int) -> bytes:
    request = encode_request_header(key, version, correlation_id, "tester")
    request += b"".join(codec(type(message), version).encode(message))
    return struct.pack(">i", len(request)) + request


def question(number: int) -> bytes:
    """A request whose number comes back in the answer."""
    return encoded(ListOffsetsRequest(replica_id=number), LIST_OFFSETS, VERSION, number)


async def answer(peer: Peer) -> tuple[int, int]:
    """Correlation id and number of the next answer."""
    frame = memoryview(await peer.reply())
    assert len(frame), "the connection was closed"
    correlation_id, position = decode_response_header(LIST_OFFSETS, VERSION, frame)
    response, end = codec(ListOffsetsResponse, VERSION).decode(frame, position)
    assert end == len(frame)
    return correlation_id, response.throttle_time_ms


class Bench:
    """A dispatcher behind a real socket; ListOffsets is handled by whatever the test says."""

    def __init__(self, handle: Handler, patch: pytest.MonkeyPatch) -> None:
        load = handlers.load
        patch.setattr(
            handlers, "load", lambda key: handlers.Handler(handle, False) if key == LIST_OFFSETS else load(key)
        )
        self.metrics = Metrics()
        self.clock = HandClock()
        self.dispatcher = Dispatcher(
            cast(Any, SimpleNamespace(metadata=SimpleNamespace(image=EMPTY))), self.metrics, self.clock.monotonic
        )
        network = TcpNetwork(asyncio.get_running_loop())
        self.server = Server(network, self.clock, self.dispatcher.serve, self.dispatcher.bad_frame, Limits())
        self.port = self.server.listen("PLAINTEXT", HOST, 0).port
        self.server.start_serving()

    @classmethod
    @asynccontextmanager
    async def start(cls, handle: Handler) -> AsyncIterator[tuple[Bench, Peer]]:
        with pytest.MonkeyPatch.context() as patch:
            bench = cls(handle, patch)
            connected = socket.create_connection((HOST, bench.port))
            connected.setblocking(False)
            try:
                yield bench, Peer(connected)
            finally:
                connected.close()
                bench.server.close()
                await bench.dispatcher.close()


def reply_to(request: ListOffsetsRequest) -> ListOffsetsResponse:
    return ListOffsetsResponse(throttle_time_ms=request.replica_id)


def test_a_plain_handler_is_answered_at_once() -> None:
    async def work() -> None:
        contexts: list[Context] = []

        def handle(request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
            contexts.append(context)
            return reply_to(request)

        async with Bench.start(handle) as (bench, peer):
            await peer.send(question(7) + question(8))
            assert [await answer(peer), await answer(peer)] == [(7, 7), (8, 8)]
            assert (contexts[0].version, contexts[0].client_id, contexts[0].listener) == (
                VERSION,
                "tester",
                "PLAINTEXT",
            )
            assert sum(bench.metrics.requests[LIST_OFFSETS, VERSION].buckets) == 2

    run("uvloop", work())


def test_a_later_answer_keeps_its_place_and_holds_up_nobody() -> None:
    async def work() -> None:
        waiting: dict[int, Later[ListOffsetsResponse]] = {}

        def handle(request: ListOffsetsRequest, context: Context) -> Any:
            if request.replica_id % 2:
                waiting[request.replica_id] = Later()
                return waiting[request.replica_id]
            return reply_to(request)

        async with Bench.start(handle) as (_, peer):
            await peer.send(question(1) + question(2) + question(3))
            await asyncio.sleep(0.05)
            assert sorted(waiting) == [1, 3]
            waiting[3].complete(ListOffsetsResponse(throttle_time_ms=33))
            waiting[1].complete(ListOffsetsResponse(throttle_time_ms=11))
            assert [await answer(peer) for _ in range(3)] == [(1, 11), (2, 2), (3, 33)]

    run("uvloop", work())


def test_an_answer_that_is_ready_before_it_is_asked_for_is_given() -> None:
    async def work() -> None:
        def handle(request: ListOffsetsRequest, context: Context) -> Later[ListOffsetsResponse]:
            later: Later[ListOffsetsResponse] = Later()
            later.complete(reply_to(request))
            return later

        async with Bench.start(handle) as (_, peer):
            await peer.send(question(5))
            assert await answer(peer) == (5, 5)

    run("uvloop", work())


def test_a_coroutine_is_waited_for_and_keeps_its_request() -> None:
    async def work() -> None:
        started: list[int] = []
        release = asyncio.Event()

        async def handle(request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
            started.append(request.replica_id)
            await release.wait()
            return reply_to(request)

        async with Bench.start(handle) as (_, peer):
            await peer.send(question(1) + question(2))
            await asyncio.sleep(0.05)
            assert started == [1]
            release.set()
            assert [await answer(peer), await answer(peer)] == [(1, 1), (2, 2)]

    run("uvloop", work())


def test_no_answer_leaves_no_gap() -> None:
    async def work() -> None:
        def handle(request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse | None:
            return reply_to(request) if request.replica_id != 2 else None

        async with Bench.start(handle) as (bench, peer):
            await peer.send(question(1) + question(2) + question(3))
            assert [await answer(peer), await answer(peer)] == [(1, 1), (3, 3)]
            assert sum(bench.metrics.requests[LIST_OFFSETS, VERSION].buckets) == 3

    run("uvloop", work())


def fail(request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
    raise RuntimeError("a bug")


async def fail_later(request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
    await asyncio.sleep(0)
    raise RuntimeError("a bug")


def answer_nonsense(request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
    return ListOffsetsResponse(throttle_time_ms=2**40)


def answer_nonsense_later(request: ListOffsetsRequest, context: Context) -> Later[ListOffsetsResponse]:
    later: Later[ListOffsetsResponse] = Later()
    asyncio.get_running_loop().call_soon(later.complete, ListOffsetsResponse(throttle_time_ms=2**40))
    return later


async def answer_nonsense_from_a_coroutine(request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
    return ListOffsetsResponse(throttle_time_ms=2**40)


@pytest.mark.parametrize(
    "handle", [fail, fail_later, answer_nonsense, answer_nonsense_later, answer_nonsense_from_a_coroutine]
)
def test_a_failure_of_our_own_is_counted_logged_and_ends_the_connection(
    handle: Handler, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with Bench.start(handle) as (bench, peer):
            await peer.send(question(1))
            assert await peer.is_closed()
            assert bench.metrics.unhandled_errors == 1
            assert bench.metrics.client_mistakes == 0
            assert bench.server.traffic.closed == {"internal error": 1}

    run("uvloop", work())
    assert [record.msg for record in caplog.records] == ["request failed"]
    assert caplog.records[0].exc_info


def test_a_refusal_of_the_whole_request_ends_the_connection_without_a_stack_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def refuse(request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "ask another")

    async def work() -> None:
        async with Bench.start(refuse) as (bench, peer):
            await peer.send(question(1))
            assert await peer.is_closed()
            assert bench.metrics.unhandled_errors == 0

    run("uvloop", work())
    assert [record.exc_info for record in caplog.records] == [None]


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\2",
        struct.pack(">hhih", LIST_OFFSETS, VERSION, 1, 500),  # the client id is not there
        struct.pack(">hhih", LIST_OFFSETS, VERSION, 1, -1) + b"\0",  # the body is cut short
        struct.pack(">hhih", LIST_OFFSETS, VERSION, 1, -1) + struct.pack(">ibi", 1, 0, 2**31 - 1),
        struct.pack(">hhih", LIST_OFFSETS, 99, 1, -1) + bytes(20),
        struct.pack(">hhih", LIST_OFFSETS, -1, 1, -1) + bytes(20),
        struct.pack(">hhih", 51, 0, 1, -1) + bytes(20),  # has a table, is not served
        struct.pack(">hhih", 9999, 0, 1, -1) + bytes(20),
        struct.pack(">hhih", LIST_OFFSETS, VERSION, 1, -1) + struct.pack(">ibi", 1, 0, 100_001) + bytes(600_006),
    ],
)
def test_a_mistake_of_the_client_is_counted_and_ends_its_connection(
    frame: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with Bench.start(fail) as (bench, peer):
            await peer.send(struct.pack(">i", len(frame)) + frame)
            assert await peer.is_closed()
            assert bench.metrics.client_mistakes == 1
            assert bench.metrics.unhandled_errors == 0
            assert bench.server.traffic.closed == {"bad request": 1}

    run("uvloop", work())
    assert [record.exc_info for record in caplog.records] == [None]


def test_a_bad_frame_is_a_mistake_of_the_client() -> None:
    async def work() -> None:
        async with Bench.start(fail) as (bench, peer):
            await peer.send(struct.pack(">i", -1))
            assert await peer.is_closed()
            assert bench.metrics.client_mistakes == 1

    run("uvloop", work())


def test_a_newer_client_learns_the_versions_in_version_0() -> None:
    async def work() -> None:
        async with Bench.start(fail) as (bench, peer):
            await peer.send(struct.pack(">ihhih", 30, 18, 99, 4711, -1) + bytes(20))
            frame = memoryview(await peer.reply())
            assert struct.unpack_from(">ih", frame) == (4711, ErrorCode.UNSUPPORTED_VERSION)
            response, _ = codec(ApiVersionsResponse, 0).decode(frame, 4)
            assert {key.api_key for key in response.api_keys} == set(handlers.SERVED)
            await peer.send(encoded(ApiVersionsRequest("x", "1"), 18, 3, 5))
            assert (await peer.reply())[:6] == struct.pack(">ih", 5, 0)
            assert bench.metrics.client_mistakes == 0

    run("uvloop", work())


def test_whoever_works_on_an_answer_learns_that_nobody_waits_for_it() -> None:
    async def work() -> None:
        abandoned = asyncio.Event()

        def handle(request: ListOffsetsRequest, context: Context) -> Later[ListOffsetsResponse]:
            return Later(abandoned.set)

        async with Bench.start(handle) as (_, peer):
            await peer.send(question(1))
            await asyncio.sleep(0.02)
            assert not abandoned.is_set()
            peer.socket.close()
            await abandoned.wait()

    run("uvloop", work())


def test_closing_ends_the_coroutines_that_are_under_way() -> None:
    async def work() -> None:
        ended = asyncio.Event()

        async def handle(request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
            try:
                await asyncio.sleep(60)
            finally:
                ended.set()
            return reply_to(request)

        async with Bench.start(handle) as (bench, peer):
            await peer.send(question(1))
            await asyncio.sleep(0.02)
            await bench.dispatcher.close()
            assert ended.is_set()
            assert bench.metrics.unhandled_errors == 0

    run("uvloop", work())
