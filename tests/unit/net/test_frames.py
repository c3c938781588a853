"""The frame splitter gives the same frames however the stream was cut, and refuses lengths that no frame may have."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.wire.frames import FrameError, FrameSplitter


def feed(splitter: FrameSplitter, stream: bytes, cuts: list[int]) -> list[bytes]:
    """Push a stream through a splitter, at most `cuts[i]` bytes at a time; frames are copied before the next push."""
    frames: list[bytes] = []
    position = turn = 0
    while position < len(stream):
        into = splitter.writable()
        count = min(cuts[turn % len(cuts)], len(into), len(stream) - position)
        into[:count] = stream[position : position + count]
        frames += [bytes(frame) for frame in splitter.received(count)]
        position += count
        turn += 1
    return frames


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


@given(
    payloads=st.lists(st.binary(max_size=200), max_size=12),
    cuts=st.lists(st.integers(1, 90), min_size=1, max_size=8),
    scratch_bytes=st.integers(4, 128),
)
def test_frames_do_not_depend_on_how_the_stream_was_cut(
    payloads: list[bytes], cuts: list[int], scratch_bytes: int
) -> None:
    splitter = FrameSplitter(memoryview(bytearray(scratch_bytes)), 1000)
    assert feed(splitter, b"".join(map(framed, payloads)), cuts) == payloads
    assert splitter.held_bytes == 0


def test_a_large_frame_grows_with_what_arrives_and_not_with_what_was_announced() -> None:
    splitter = FrameSplitter(memoryview(bytearray(64)), 100_000_000)
    splitter.writable()[:10] = struct.pack(">i", 90_000_000) + b"abcdef"
    assert splitter.received(10) == []
    assert splitter.held_bytes <= 1 << 20


def test_a_frame_of_many_buffers_arrives_whole() -> None:
    payload = bytes(range(256)) * 20_000
    splitter = FrameSplitter(memoryview(bytearray(65536)), 100_000_000)
    assert feed(splitter, framed(payload), [65536, 1000, 200_000]) == [payload]


@pytest.mark.parametrize("length", [-1, -(2**31), 1001, 2**31 - 1])
@pytest.mark.parametrize("cut", [1, 100])
def test_an_impossible_length_is_refused(length: int, cut: int) -> None:
    splitter = FrameSplitter(memoryview(bytearray(64)), 1000)
    with pytest.raises(FrameError, match="at most 1000"):
        feed(splitter, struct.pack(">i", length) + b"rest", [cut])


def test_a_peer_that_is_trusted_gets_the_room_that_it_announces_at_once_up_to_a_limit() -> None:
    for announced, room in ((5_000_000, 5_000_004), (50_000_000, 8_000_000)):
        splitter = FrameSplitter(memoryview(bytearray(64)), 100_000_000, trusted_bytes=8_000_000)
        splitter.writable()[:8] = announced.to_bytes(4, "big") + b"1234"
        assert splitter.received(8) == []
        assert len(splitter.writable()) == room - 8
        assert splitter.held_bytes == room
