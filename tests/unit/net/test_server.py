"""The server's end of connections: order, back-pressure, bounds on memory, and every way in which a connection ends."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from functools import partial
from pathlib import Path

import pytest

from barnabas.core.seams import File
from barnabas.net.server import Connection, Limits
from barnabas.net.sockets import TcpListener, TcpNetwork
from barnabas.storage.disk import RealDisk
from tests.unit.net.peer import HOST, LOOPS, Bench, as_reply, framed, run

MIB = 1 << 20
FLOOD = b"echo ".ljust(10_000, b".")


@pytest.fixture(params=sorted(LOOPS))
def loop(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


# order


def test_replies_come_in_the_order_of_requests_whatever_is_ready_first(loop: str) -> None:
    async def work() -> None:
        async with Bench.start() as bench:
            peer = await bench.connect()
            await peer.ask("defer 1", "echo 2", "defer 3", "echo 4")
            await bench.until(lambda: len(bench.served) == 4)  # the later ones were worked on meanwhile
            bench.slots["3"].reply(as_reply(b"3"))
            await peer.ask("echo 5")
            await bench.until(lambda: len(bench.served) == 5)
            bench.slots["1"].reply(as_reply(b"1"))
            assert await peer.replies(5) == ["1", "echo 2", "3", "echo 4", "echo 5"]

    run(loop, work())


def test_nothing_is_worked_on_behind_an_exclusive_request(loop: str) -> None:
    async def work() -> None:
        async with Bench.start() as bench:
            peer = await bench.connect()
            await peer.ask("exclusive 1", "echo 2", "echo 3")
            await bench.quiet()
            await peer.ask("echo 4")
            await bench.quiet()
            assert bench.served == ["exclusive 1"]
            bench.slots["1"].reply(as_reply(b"1"))
            assert await peer.replies(4) == ["1", "echo 2", "echo 3", "echo 4"]

    run(loop, work())


def test_a_request_without_a_reply_leaves_no_gap(loop: str) -> None:
    async def work() -> None:
        async with Bench.start() as bench:
            peer = await bench.connect()
            await peer.ask("mute", "defer 1", "mute", "echo 2", "defer 3")
            await bench.until(lambda: len(bench.served) == 5)
            bench.slots["3"].reply([])
            bench.slots["1"].reply(as_reply(b"1"))
            await peer.ask("echo 4")
            assert await peer.replies(3) == ["1", "echo 2", "echo 4"]

    run(loop, work())


def test_a_request_that_wakes_an_earlier_one_is_still_replied_to_before_the_next(loop: str) -> None:
    """As a produce does that ends a long poll of the same connection, while more requests have been put off."""

    async def work() -> None:
        async with Bench.start() as bench:
            peer = await bench.connect()
            under_way = [f"defer {i}" for i in range(32)]
            await peer.ask(*under_way, "wake 1", "echo a", "echo b")
            await bench.until(lambda: len(bench.served) == 32)
            bench.slots["0"].reply(as_reply(b"woken 0"))
            for i in range(2, 32):
                bench.slots[str(i)].reply(as_reply(f"woken {i}".encode()))
            assert await peer.replies(35) == [*(f"woken {i}" for i in range(32)), "wake 1", "echo a", "echo b"]

    run(loop, work())


def test_a_long_chain_of_requests_that_wake_one_another_does_not_nest(loop: str) -> None:
    async def work() -> None:
        async with Bench.start() as bench:
            peers = [await bench.connect() for _ in range(250)]
            for i, peer in enumerate(peers):
                await peer.ask(*(f"defer {i}.{k}" for k in range(32)), f"wake {i + 1}.0")
            await bench.until(lambda: len(bench.slots) == 32 * 250)
            last = await bench.connect()
            await last.ask("defer 250.0")
            await bench.until(lambda: "250.0" in bench.slots)
            bench.slots["0.0"].reply(as_reply(b"woken 0.0"))
            assert await last.replies(1) == ["woken 250.0"]

    run(loop, work())


def test_any_number_of_peers_that_ask_at_once_are_all_replied_to(loop: str) -> None:
    async def work() -> None:
        async with Bench.start() as bench:
            peers = [await bench.connect() for _ in range(200)]
            for peer in peers:
                await peer.ask("defer")
            await bench.until(lambda: len(bench.served) == 200)
            for peer in peers:
                await peer.ask("echo 1", "echo 2")
            await bench.until(lambda: len(bench.served) == 600)
            for connection in list(bench.server.connections):
                for slot in list(connection._slots)[:1]:
                    slot.reply(as_reply(b"0"))
            for peer in peers:
                assert await peer.replies(3) == ["0", "echo 1", "echo 2"]

    run(loop, work())


def test_what_was_replied_before_a_connection_is_closed_still_leaves(loop: str) -> None:
    async def work() -> None:
        async with Bench.start() as bench:
            peer = await bench.connect()
            await peer.ask("echo 1", "echo 2", "close")
            assert await peer.replies(2) == ["echo 1", "echo 2"]
            assert await peer.reply() == b""

    run(loop, work())


def test_frames_may_come_byte_by_byte(loop: str) -> None:
    async def work() -> None:
        async with Bench.start() as bench:
            peer = await bench.connect()
            for byte in framed(b"echo 1", b"echo 2"):
                await peer.send(bytes([byte]))
                await asyncio.sleep(0)
            assert await peer.replies(2) == ["echo 1", "echo 2"]
            assert not bench.server.holders

    run(loop, work())


# peers that do not read


def test_a_peer_that_takes_no_replies_is_not_read_and_others_are(loop: str) -> None:
    async def work() -> None:
        async with Bench.start() as bench:
            peer, other = await bench.connect(receive_buffer_bytes=4096), await bench.connect()
            await peer.ask(f"big {8 * MIB}")
            await bench.until(lambda: bench.served)
            flood = asyncio.create_task(peer.send(framed(*[FLOOD] * 1000)))
            await bench.quiet()
            assert bench.served == [f"big {8 * MIB}"]
            assert not flood.done()
            await other.ask("echo other")
            assert await other.replies(1) == ["echo other"]
            assert len(await peer.reply()) == 8 * MIB
            for _ in range(1000):
                assert await peer.reply() == FLOOD
            await flood

    run(loop, work())


def test_a_late_reply_that_is_not_taken_stops_the_reading_too(loop: str) -> None:
    async def work() -> None:
        async with Bench.start() as bench:
            peer = await bench.connect(receive_buffer_bytes=4096)
            await peer.ask("defer 1")
            await bench.until(lambda: bench.slots)
            bench.slots["1"].reply(as_reply(bytes(8 * MIB)))
            flood = asyncio.create_task(peer.send(framed(b"echo " + bytes(16 * MIB))))
            await bench.quiet()
            assert bench.server.traffic.bytes_in < 1000
            assert not bench.server.holders
            flood.cancel()

    run(loop, work())


def test_no_more_than_a_few_requests_of_a_connection_are_under_way(loop: str) -> None:
    async def work() -> None:
        async with Bench.start() as bench:
            peer = await bench.connect()
            await peer.ask(*(f"defer {i}" for i in range(100)))
            await bench.quiet()
            assert len(bench.served) == 32
            for i in range(100):
                await bench.until(partial(bench.slots.__contains__, str(i)))
                bench.slots[str(i)].reply(as_reply(str(i).encode()))
            assert await peer.replies(100) == [str(i) for i in range(100)]

    run(loop, work())


def test_a_flood_of_small_requests_leaves_others_their_turn(loop: str) -> None:
    async def work() -> None:
        async with Bench.start() as bench:
            flooding, other = await bench.connect(), await bench.connect()
            await bench.until(lambda: len(bench.server.connections) == 2)
            flooding.socket.send(framed(*[b"echo x"] * 5000))
            other.socket.send(framed(b"echo other"))
            assert await other.replies(1) == ["echo other"]
            assert await flooding.replies(5000) == ["echo x"] * 5000
            assert bench.served.index("echo other") < 500

    run(loop, work())


# memory


def test_an_announced_length_costs_next_to_nothing_until_the_bytes_come(loop: str) -> None:
    async def work() -> None:
        async with Bench.start() as bench:
            peers = [await bench.connect() for _ in range(50)]
            for peer in peers:
                await peer.send(struct.pack(">i", 100_000_000) + b"echo")
            await bench.until(lambda: len(bench.server.holders) == 50)
            assert sum(bench.server.holders.values()) <= 50 * 4096

    run(loop, work())


def test_large_frames_share_a_budget_and_all_get_through(loop: str) -> None:
    frame_bytes, count = 3 * MIB, 20
    limits = Limits(max_held_bytes=4 * MIB)

    async def work() -> None:
        async with Bench.start(limits) as bench:
            most = 0

            async def upload(index: int) -> None:
                peer = await bench.connect()
                payload = f"echo {index} ".encode().ljust(frame_bytes, b".")
                await peer.send(framed(payload))
                assert await peer.reply() == payload

            async def measure() -> None:
                nonlocal most
                while True:
                    most = max(most, sum(bench.server.holders.values()))
                    await asyncio.sleep(0)

            measuring = asyncio.create_task(measure())
            await asyncio.gather(*(upload(index) for index in range(count)))
            measuring.cancel()
            assert not bench.server.holders
            assert not bench.server.waiting
            # One growth beyond the budget, the oldest's whole frame, and what lay in the receive buffer for each other.
            assert 3 * MIB < most < limits.max_held_bytes + MIB + frame_bytes + count * 65536

    run(loop, work(), 60)


def test_a_connection_that_ends_gives_its_share_of_the_budget_back(loop: str) -> None:
    async def work() -> None:
        async with Bench.start(Limits(max_held_bytes=MIB)) as bench:
            stuck, waiting = await bench.connect(), await bench.connect()
            await stuck.send(framed(bytes(2 * MIB))[: MIB + 100_000])
            await bench.until(lambda: sum(bench.server.holders.values()) > MIB)
            upload = asyncio.create_task(waiting.send(framed(b"echo ".ljust(2 * MIB, b"."))))
            await bench.until(lambda: bench.server.waiting)
            small = await bench.connect()
            await small.ask("echo small")  # what fits the receive buffer needs no budget
            assert await small.replies(1) == ["echo small"]
            assert len(bench.served) == 1
            stuck.socket.close()
            assert len(await waiting.reply()) == 2 * MIB
            await upload

    run(loop, work())


def test_requests_that_were_put_off_cost_no_more_than_their_bytes() -> None:
    async def work() -> None:
        async with Bench.start() as bench:
            peer = await bench.connect()
            await peer.ask("exclusive 1", *["mute"] * 5000)
            await bench.quiet()
            connection = next(iter(bench.server.connections))
            assert bench.served == ["exclusive 1"]
            assert isinstance(connection._backlog, memoryview)
            assert len(connection._backlog) <= 65536
            bench.slots["1"].reply(as_reply(b"1"))
            await bench.until(lambda: len(bench.served) == 5001)

    run("asyncio", work())


# files


class Range:
    """A part of a file, as a log gives it out."""

    def __init__(self, file: File, position: int, size: int) -> None:
        self.file, self.position, self.size = file, position, size
        self.is_intact = True

    def __len__(self) -> int:
        return self.size


@pytest.fixture
def file(tmp_path: Path) -> File:
    file = RealDisk().open(str(tmp_path / "file"), create=True)
    file.append(bytes(range(256)) * 4096 * 8)
    return file


def test_a_range_of_a_file_is_sent_between_its_neighbours(loop: str, file: File) -> None:
    async def work() -> None:
        async with Bench.start() as bench:
            bench.parts["range"] = Range(file, 3, 5 * MIB)
            peer = await bench.connect(receive_buffer_bytes=16384)
            await peer.ask("send range", "echo 1")
            expected = (bytes(range(256)) * 4096 * 8)[3 : 3 + 5 * MIB]
            assert await peer.reply() == b"<" + expected + b">"
            assert await peer.replies(1) == ["echo 1"]
            assert bench.server.traffic.sendfile_bytes_out == 5 * MIB

    run(loop, work())
    file.close()


def test_a_file_that_was_cut_below_a_promised_reply_ends_the_connection(loop: str, file: File) -> None:
    async def work() -> None:
        async with Bench.start() as bench:
            bench.parts["range"] = Range(file, 0, 8 * MIB)
            peer = await bench.connect(receive_buffer_bytes=16384)
            await peer.ask("send range")
            await bench.until(lambda: bench.server.traffic.sendfile_bytes_out)
            file.truncate(3 * MIB)
            assert await peer.is_closed()
            assert bench.server.traffic.closed == {"truncated under a reader": 1}
            assert bench.server.traffic.sendfile_bytes_out < 8 * MIB

    run(loop, work())
    file.close()


def test_a_file_that_was_cut_and_written_again_ends_the_connection(loop: str, file: File) -> None:
    async def work() -> None:
        async with Bench.start() as bench:
            part = bench.parts["range"] = Range(file, 0, 8 * MIB)
            peer = await bench.connect(receive_buffer_bytes=16384)
            await peer.ask("send range")
            await bench.until(lambda: bench.server.traffic.sendfile_bytes_out)
            part.is_intact = False
            assert await peer.is_closed()
            assert bench.server.traffic.closed == {"truncated under a reader": 1}

    run(loop, work())
    file.close()


# ends


def test_a_length_that_no_frame_may_have_ends_only_its_own_connection(loop: str) -> None:
    async def work() -> None:
        async with Bench.start(Limits(max_frame_bytes=1000)) as bench:
            good, negative, long = [await bench.connect() for _ in range(3)]
            await negative.send(struct.pack(">i", -1))
            await long.send(framed(b"echo 1") + struct.pack(">i", 1001))
            assert await negative.is_closed()
            assert await long.is_closed()
            await good.ask("echo good")
            assert await good.replies(1) == ["echo good"]
            assert len(bench.bad_frames) == 2
            assert bench.server.traffic.closed == {"bad frame": 2}

    run(loop, work())


def test_a_peer_that_has_sent_its_last_still_gets_the_replies_that_were_ready(loop: str) -> None:
    async def work() -> None:
        async with Bench.start() as bench:
            peer = await bench.connect()
            await peer.ask("echo 1", "mute", "echo 2")
            peer.socket.shutdown(socket.SHUT_WR)
            assert await peer.replies(3) == ["echo 1", "echo 2", ""]
            assert bench.server.traffic.closed == {"end of stream": 1}

    run(loop, work())


def test_a_reset_in_the_middle_of_a_reply_ends_only_its_own_connection(loop: str) -> None:
    async def work() -> None:
        async with Bench.start() as bench:
            peer, other = await bench.connect(receive_buffer_bytes=4096), await bench.connect()
            await peer.ask(f"big {8 * MIB}")
            await bench.until(lambda: bench.server.traffic.copied_bytes_out)
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.socket.close()
            await bench.until(lambda: len(bench.server.connections) == 1)
            assert bench.server.traffic.closed == {"reset": 1}
            await other.ask("echo other")
            assert await other.replies(1) == ["echo other"]

    run(loop, work())


@pytest.mark.parametrize("last_bytes", [b"", b"\0\0", struct.pack(">i", 100) + b"half", framed(b"defer 1")])
def test_a_reset_right_behind_the_last_bytes_is_noticed(loop: str, last_bytes: bytes) -> None:
    async def work() -> None:
        async with Bench.start() as bench:
            peer = await bench.connect()
            await bench.until(lambda: bench.server.connections)
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.socket.send(last_bytes)  # without giving the loop a turn in between
            peer.socket.close()
            await bench.until(lambda: not bench.server.connections)
            assert bench.server.traffic.closed == {"reset": 1}

    run(loop, work())


def test_who_waits_for_a_connection_that_ends_learns_of_it(loop: str) -> None:
    async def work() -> None:
        async with Bench.start() as bench:
            peer = await bench.connect()
            await peer.ask("defer 1", "defer 2", "defer 3")
            await bench.until(lambda: len(bench.slots) == 3)
            bench.slots["2"].reply(as_reply(b"2"))
            peer.socket.close()
            await bench.until(lambda: bench.abandoned)
            assert bench.abandoned == ["1", "3"]
            bench.slots["1"].reply(as_reply(b"too late"))

    run(loop, work())


@pytest.mark.parametrize(
    ("request_sent", "ends"),
    [
        (b"", True),  # never said anything
        (struct.pack(">i", 100) + b"half", True),  # a frame that never ends
        (framed(b"echo 1"), True),  # was served, has nothing more to say
        (framed(b"defer 1"), False),  # waits for us
        (framed(b"big 8000000"), True),  # does not take its reply
    ],
)
def test_a_connection_without_progress_is_closed_unless_we_owe_it_a_reply(
    loop: str, request_sent: bytes, ends: bool
) -> None:
    async def work() -> None:
        async with Bench.start(Limits(max_idle_seconds=10)) as bench:
            peer = await bench.connect(receive_buffer_bytes=4096)
            await peer.send(request_sent)
            await bench.quiet()
            bench.clock.seconds += 9
            bench.server.close_idle()
            assert len(bench.server.connections) == 1
            bench.clock.seconds += 2
            bench.server.close_idle()
            assert len(bench.server.connections) == (0 if ends else 1)
            assert bench.server.traffic.closed == ({"idle": 1} if ends else None)

    run(loop, work())


def test_connections_beyond_the_limit_are_closed_and_places_become_free_again(loop: str) -> None:
    async def work() -> None:
        async with Bench.start(Limits(max_connections=2)) as bench:
            first, second, third = [await bench.connect() for _ in range(3)]
            assert await third.is_closed()
            await first.ask("echo 1")
            assert await first.replies(1) == ["echo 1"]
            second.socket.close()
            await bench.until(lambda: len(bench.server.connections) == 1)
            fourth = await bench.connect()
            await fourth.ask("echo 4")
            assert await fourth.replies(1) == ["echo 4"]
            assert bench.server.traffic.refused == 1
            assert bench.server.traffic.accepted == 3

    run(loop, work())


def test_one_address_may_not_take_all_connections(loop: str) -> None:
    async def work() -> None:
        async with Bench.start(Limits(max_connections_per_ip=1)) as bench:
            first, second = await bench.connect(), await bench.connect()
            assert await second.is_closed()
            first.socket.close()
            await bench.until(lambda: not bench.server.connections)
            third = await bench.connect()
            await third.ask("echo 3")
            assert await third.replies(1) == ["echo 3"]

    run(loop, work())


def test_a_closing_server_closes_its_connections_and_its_port(loop: str) -> None:
    async def work() -> None:
        async with Bench.start() as bench:
            peer = await bench.connect()
            await peer.ask("echo 1")
            assert await peer.replies(1) == ["echo 1"]
            bench.server.close()
            assert await peer.is_closed()
            with pytest.raises(ConnectionRefusedError):
                await bench.connect()

    run(loop, work())


# listening


def test_connections_that_come_before_the_server_serves_are_kept(loop: str) -> None:
    async def work() -> None:
        bench = Bench(Limits())
        peer = await bench.connect()
        await peer.ask("echo early")
        await bench.quiet()
        assert bench.served == []
        bench.server.start_serving()
        assert await peer.replies(1) == ["echo early"]
        bench.close()

    run(loop, work())


def test_a_port_that_is_taken_is_an_error(loop: str) -> None:
    async def work() -> None:
        async with Bench.start() as bench:
            with pytest.raises(OSError) as caught:
                bench.server.listen("OTHER", HOST, bench.port)
            assert caught.value.errno == errno.EADDRINUSE

    run(loop, work())


def test_a_listener_names_its_connections(loop: str) -> None:
    async def work() -> None:
        async with Bench.start() as bench:
            port = bench.server.listen("INTERNAL", HOST, 0).port
            with socket.create_connection((HOST, port)):
                await bench.until(lambda: bench.server.connections)
                connection: Connection = next(iter(bench.server.connections))
                assert connection.listener == "INTERNAL"
                assert connection.peer.startswith(f"{HOST}:")

    run(loop, work())


class FullTable(socket.socket):
    """A listening socket of a process that has no descriptor left, twice."""

    failures = 2

    def accept(self) -> tuple[socket.socket, object]:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_a_peer_that_comes_while_there_are_no_descriptors_is_accepted_later(loop: str) -> None:
    async def work() -> None:
        listening = FullTable()
        listening.setblocking(False)
        listening.bind((HOST, 0))
        listening.listen()
        accepted = asyncio.Event()

        def on_accept(connected: object, _: str) -> None:
            connected.close()  # type: ignore[attr-defined]
            accepted.set()

        listener = TcpListener(asyncio.get_running_loop(), listening, on_accept)
        with socket.create_connection((HOST, listener.port)):
            await accepted.wait()
        assert listening.failures == 0
        listener.close()

    run(loop, work())


def test_a_host_without_an_address_cannot_be_connected_to(loop: str) -> None:
    async def work() -> None:
        network = TcpNetwork(asyncio.get_running_loop())
        with pytest.raises(OSError):
            await network.connect("no-such-host.invalid", 9092)
        with socket.socket() as unused:
            unused.bind((HOST, 0))
            with pytest.raises(ConnectionRefusedError):
                await network.connect(HOST, unused.getsockname()[1])

    run(loop, work())
