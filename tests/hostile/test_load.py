"""Too much of everything: connections, announced bytes, replies that nobody takes, bytes hidden in compressed ones.

`make fuzz` does the same at full size. The bounds on memory are two to three times what was measured.
"""

from __future__ import annotations

import socket
import struct
import time
from pathlib import Path

import pytest

from barnabas.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from tests.hostile.attacks import ATTACKS, Size, carry_out
from tests.hostile.crowds import QUESTION, RESET_ON_CLOSE, connected, crowd, many_descriptors
from tests.hostile.victim import MIB, attacked
from tests.hostile.wire import encode_request, framed
from tests.peers import eventually

SHORT = Size(
    storm_seconds=3,
    storm_share=0,
    announcing_seconds=1,
    readers=100,
    questioners=100,
    reading_seconds=4,
    bombs=3,
    calm_seconds=1,
    p99_floor_ms=5000,
    niceness=0,
)  # what a test suite can afford, on a machine that has other things to do


@pytest.mark.parametrize("name", [name for name in ATTACKS if name != "fuzz"])
def test_an_attack_costs_little_memory_and_disturbs_nobody(tmp_path: Path, name: str) -> None:
    figures = carry_out(name, tmp_path, SHORT, seed=0)
    print(figures)
    assert figures.problems == []


def test_large_frames_that_never_end_stay_within_the_budget(tmp_path: Path) -> None:
    """`queued.max.request.bytes` bounds what partial requests hold, however many bytes really come."""
    settings = {"queued.max.request.bytes": str(32 * MIB)}
    with many_descriptors(2000), attacked(tmp_path, settings) as victim:
        before = victim.resident_mib()
        with victim.witness() as witness, crowd(victim, 200) as greedy:
            chunk = struct.pack(">i", 100_000_000) + bytes(MIB)
            for one in greedy:
                one.setblocking(False)
            unsent = {one: memoryview(chunk) for one in greedy}
            deadline = time.monotonic() + 2
            while time.monotonic() < deadline:
                for one, rest in list(unsent.items()):
                    try:
                        unsent[one] = rest[one.send(rest) :]
                    except BlockingIOError:
                        continue
                    if not unsent[one]:
                        del unsent[one]
                time.sleep(0.01)
            grown = victim.resident_mib() - before
            assert grown < 32 + 100, f"{grown:.0f} MiB"
        witness.was_served(15.0)


def test_a_long_list_of_tiny_items_does_not_hold_up_the_others(tmp_path: Path) -> None:
    """As many topics without a name as a request may have; then far too many, and as many produced partitions."""
    most = struct.pack(">hhihi", 3, 1, 1, -1, 100_000) + bytes(200_000)
    too_many = struct.pack(">hhihi", 3, 1, 1, -1, 20_000_000) + bytes(40_000_000)
    pairs = struct.pack(">hhihhhii", 0, 3, 1, -1, -1, 1, 1000, 1) + struct.pack(">h1si", 1, b"t", 4_000_000)
    with attacked(tmp_path) as victim:
        before = victim.resident_mib()
        with victim.witness() as witness:
            with victim.connect(timeout=30) as wire:
                wire.send(framed(most))
                assert len(wire.receive()) > 20
            for request in (too_many, pairs + bytes(32_000_000)):
                with victim.connect(timeout=30) as wire:
                    wire.send(framed(request))
                    assert wire.is_closed_by_peer()
        grown = victim.peak_mib() - before
        assert grown < 200, f"{grown:.0f} MiB"
        witness.was_served(15.0, rounds=2)


def test_connections_that_come_and_go_leave_nothing_behind(tmp_path: Path) -> None:
    with many_descriptors(2000), attacked(tmp_path) as victim:
        topic = victim.new_topic()
        waiting = FetchRequest(
            max_wait_ms=2**31 - 1,
            min_bytes=2**31 - 1,
            max_bytes=1,
            session_epoch=-1,
            topics=[FetchTopic(topic, partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1)])],
        )
        long_polls = framed(encode_request(waiting, 12)) * 30
        before = victim.resident_mib()
        with victim.witness() as witness:
            for number in range(3000):
                with connected(victim.address) as one:
                    one.sendall((QUESTION, QUESTION[:7], long_polls)[number % 3])
                    if number % 2:
                        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            eventually(lambda: victim.metric("barnabas_connections_open") < 20, True, 20)
        grown = victim.resident_mib() - before
        assert grown < 30, f"{grown:.0f} MiB"
        witness.was_served(15.0)
