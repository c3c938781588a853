"""The client's end of a connection: whoever waits for a reply gets it, or an error that says what happened."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from barnabas.net.channel import Channel, ChannelClosed, UnsupportedByPeer
from barnabas.net.sockets import TcpNetwork
from barnabas.wire.compiler import codec
from barnabas.wire.headers import decode_request_header, response_head
from barnabas.wire.messages.k00_produce import ProduceRequest
from barnabas.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)
from barnabas.wire.messages.k18_api_versions import ApiVersion, ApiVersionsResponse
from barnabas.wire.messages.k60_describe_cluster import DescribeClusterRequest
from barnabas.wire.registry import api_named
from tests.unit.net.peer import HOST, LOOPS, framed, run

METADATA = 3


@pytest.fixture(params=sorted(LOOPS))
def loop(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class FakeBroker:
    """Answers ApiVersions by itself; of everything else it keeps what came, and says what the test tells it to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, versions: list[ApiVersion]) -> None:
        self._reader = reader
        self._writer = writer
        self._versions = versions

    async def request(self) -> tuple[int, int, int, bytes]:
        """API key, version, correlation id and body of the next request."""
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        frame = await self._reader.readexactly(size)
        header = decode_request_header(memoryview(frame))
        return header.api_key, header.api_version, header.correlation_id, frame[header.body :]

    async def negotiate(self, highest: int = 4) -> None:
        while True:
            key, version, correlation_id, _ = await self.request()
            assert key == 18
            response = ApiVersionsResponse(api_keys=self._versions)
            if version > highest:
                response.error_code = 35
                self.say(self.reply(18, 0, correlation_id, response))
                continue
            self.say(self.reply(18, version, correlation_id, response))
            return

    @staticmethod
    def reply(key: int, version: int, correlation_id: int, response: object) -> bytes:
        header = response_head(key, version)(correlation_id)[4:]
        return header + b"".join(codec(type(response), version).encode(response))

    def say(self, *frames: bytes) -> None:
        self._writer.write(framed(*frames))

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def close(self) -> None:
        self._writer.close()

    def reset(self) -> None:
        connected = self._writer.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


VERSIONS = [ApiVersion(18, 0, 4), ApiVersion(METADATA, 0, 12), ApiVersion(0, 3, 9)]


@asynccontextmanager
async def channel_to(
    versions: list[ApiVersion] | None = None, highest_api_versions: int = 4
) -> AsyncIterator[tuple[Channel, FakeBroker]]:
    """A channel, negotiated, and the broker at its other end."""
    brokers: asyncio.Queue[FakeBroker] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broker = FakeBroker(reader, writer, versions or VERSIONS)
        await broker.negotiate(highest_api_versions)
        brokers.put_nowait(broker)

    server = await asyncio.start_server(serve, HOST, 0)
    channel = await Channel.open(
        TcpNetwork(asyncio.get_running_loop()), HOST, server.sockets[0].getsockname()[1], "tester"
    )
    broker = await brokers.get()
    try:
        yield channel, broker
    finally:
        channel.close()
        broker.close()
        server.close()


def answer(node_id: int, padding: int = 0) -> MetadataResponse:
    return MetadataResponse(brokers=[MetadataResponseBroker(node_id, "h" * padding, 1)], cluster_id="c")


async def ask(channel: Channel) -> MetadataResponse:
    response: MetadataResponse = await channel.request(MetadataRequest(topics=[]))
    return response


def test_replies_find_their_callers_whatever_their_order(loop: str) -> None:
    async def work() -> None:
        async with channel_to() as (channel, broker):
            calls = [asyncio.create_task(ask(channel)) for _ in range(3)]
            requests = [await broker.request() for _ in range(3)]
            assert len({request[2] for request in requests}) == 3
            for number, (key, version, correlation_id, _) in reversed(list(enumerate(requests))):
                broker.say(broker.reply(key, version, correlation_id, answer(number)))
            assert [response.brokers[0].node_id for response in await asyncio.gather(*calls)] == [0, 1, 2]

    run(loop, work())


def test_the_newest_version_that_both_speak_is_used(loop: str) -> None:
    async def work() -> None:
        async with channel_to([ApiVersion(18, 0, 4), ApiVersion(METADATA, 0, 9)]) as (channel, broker):
            call = asyncio.create_task(ask(channel))
            key, version, correlation_id, _ = await broker.request()
            assert (key, version) == (METADATA, 9)
            broker.say(broker.reply(key, version, correlation_id, answer(1)))
            await call
            assert channel.version_for(api_named("Metadata"), highest=4) == 4

    run(loop, work())


def test_what_the_broker_does_not_serve_is_refused_before_it_is_sent(loop: str) -> None:
    async def work() -> None:
        async with channel_to([ApiVersion(18, 0, 4), ApiVersion(METADATA, 90, 99)]) as (channel, _):
            with pytest.raises(UnsupportedByPeer, match="does not serve DescribeCluster"):
                await channel.request(DescribeClusterRequest())
            with pytest.raises(UnsupportedByPeer, match="serves Metadata 90-99; this client speaks 0-13"):
                await ask(channel)

    run(loop, work())


def test_an_older_broker_is_asked_again_in_its_own_version_of_api_versions(loop: str) -> None:
    async def work() -> None:
        async with channel_to([ApiVersion(18, 0, 2), *VERSIONS[1:]], highest_api_versions=2) as (channel, _):
            assert channel.versions[METADATA] == (0, 12)

    run(loop, work())


def test_a_reply_larger_than_any_buffer_arrives_whole(loop: str) -> None:
    async def work() -> None:
        async with channel_to() as (channel, broker):
            call = asyncio.create_task(ask(channel))
            key, version, correlation_id, _ = await broker.request()
            response = MetadataResponse(brokers=[MetadataResponseBroker(n, "h" * 30_000, 1) for n in range(100)])
            broker.say(broker.reply(key, version, correlation_id, response))
            assert (await call).brokers == response.brokers

    run(loop, work())


def test_a_request_larger_than_the_socket_takes_at_once_is_sent_whole(loop: str) -> None:
    async def work() -> None:
        async with channel_to() as (channel, broker):
            names = [f"{n:06}" * 40 for n in range(40_000)]
            large = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
            calls = [asyncio.create_task(channel.request(large)), asyncio.create_task(ask(channel))]
            await asyncio.sleep(0.05)
            for number in range(2):
                key, version, correlation_id, body = await broker.request()
                if not number:
                    decoded, _ = codec(MetadataRequest, version).decode(memoryview(body), 0)
                    assert [topic.name for topic in decoded.topics or ()] == names
                broker.say(broker.reply(key, version, correlation_id, answer(number)))
            assert [response.brokers[0].node_id for response in await asyncio.gather(*calls)] == [0, 1]

    run(loop, work())


def test_a_request_without_a_reply_does_not_wait_for_one(loop: str) -> None:
    async def work() -> None:
        async with channel_to() as (channel, broker):
            await channel.send(ProduceRequest(acks=0))
            assert (await broker.request())[:2] == (0, 9)

    run(loop, work())


def end_in_the_middle(broker: FakeBroker, reply: bytes) -> None:
    broker.write(framed(reply)[:-3])
    broker.close()


ENDS: dict[str, Callable[[FakeBroker, bytes], None]] = {
    "closed": lambda broker, reply: broker.close(),
    "reset": lambda broker, reply: broker.reset(),
    "closed after half a reply": end_in_the_middle,
    "negative length": lambda broker, reply: broker.write(struct.pack(">i", -5)),
    "empty reply": lambda broker, reply: broker.say(b""),
    "reply cut short": lambda broker, reply: broker.say(reply[:12]),
    "reply of another message": lambda broker, reply: broker.say(reply[:4] + b"\xff" * 40),
    "another protocol": lambda broker, reply: broker.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10),
}


@pytest.mark.parametrize("end", ENDS)
def test_everybody_who_waits_learns_of_the_end(loop: str, end: str) -> None:
    async def work() -> None:
        async with channel_to() as (channel, broker):
            calls = [asyncio.create_task(ask(channel)) for _ in range(3)]
            requests = [await broker.request() for _ in range(3)]
            key, version, correlation_id, _ = requests[0]
            ENDS[end](broker, broker.reply(key, version, correlation_id, answer(1)))
            if end == "another protocol":  # "HTTP" is the length of a very long frame, which never comes
                await asyncio.sleep(0.05)
                broker.close()
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [ChannelClosed] * 3
            assert channel.closed
            with pytest.raises(ChannelClosed, match="is closed"):
                await ask(channel)

    run(loop, work())


def test_a_reset_right_behind_a_reply_is_noticed_by_those_who_still_wait(loop: str) -> None:
    async def work() -> None:
        network = TcpNetwork(asyncio.get_running_loop())
        listening = socket.create_server((HOST, 0))
        connected = await network.connect(*listening.getsockname())
        other, _ = listening.accept()
        channel = Channel(network, connected, "there", None)
        channel.versions = {METADATA: (0, 12)}
        calls = [asyncio.create_task(ask(channel)) for _ in range(2)]
        await asyncio.sleep(0.05)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.recv(1 << 16)
        other.send(framed(FakeBroker.reply(METADATA, 12, 1, answer(7))))  # no turn for the loop until it is reset
        other.close()
        listening.close()
        first, second = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(first, MetadataResponse | ChannelClosed)  # the reset may have overtaken the reply
        assert isinstance(second, ChannelClosed)

    run(loop, work())


def test_a_caller_that_gives_up_leaves_the_others_waiting(loop: str) -> None:
    async def work() -> None:
        async with channel_to() as (channel, broker):
            first, second = asyncio.create_task(ask(channel)), asyncio.create_task(ask(channel))
            requests = [await broker.request() for _ in range(2)]
            first.cancel()
            await asyncio.sleep(0)
            for key, version, correlation_id, _ in requests:
                broker.say(broker.reply(key, version, correlation_id, answer(correlation_id)))
            assert (await second).brokers[0].node_id == requests[1][2]
            assert not channel.closed

    run(loop, work())


def test_a_closed_channel_fails_its_callers_and_may_be_closed_again(loop: str) -> None:
    async def work() -> None:
        async with channel_to() as (channel, broker):
            call = asyncio.create_task(ask(channel))
            await broker.request()
            channel.close()
            channel.close()
            with pytest.raises(ChannelClosed, match="was closed"):
                await call

    run(loop, work())


def test_a_peer_that_ends_while_versions_are_asked_for_is_an_error_and_leaves_no_socket(loop: str) -> None:
    async def work() -> None:
        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(4)
            writer.close()

        server = await asyncio.start_server(hang_up, HOST, 0)
        with pytest.raises(ChannelClosed):
            await Channel.open(TcpNetwork(asyncio.get_running_loop()), HOST, server.sockets[0].getsockname()[1])
        server.close()

    run(loop, work())
