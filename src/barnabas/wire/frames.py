"""Frames: a 32-bit length, then that many bytes. A pure splitter that a driver feeds.

The driver receives into `writable()` and says how much came with `received()`. While nothing is left over, all
connections receive into one shared scratch buffer, so an idle connection holds no memory and a small request is decoded
where it landed. A frame that does not end within the scratch is kept as far as it came; when more of it is to be
received, its buffer grows with the bytes that really arrived, not with the length that was announced, unless the peer
is trusted with so many.
"""

from __future__ import annotations

import struct

_LENGTH = struct.Struct(">i")
_read_length = _LENGTH.unpack_from
_MIN_BUFFER_BYTES = 1 << 12
_QUICK_GROWTH_BYTES = 1 << 20  # up to here a buffer grows to sixteen times what it holds, then to twice


class FrameError(ValueError):
    """A length that no frame may have; the stream cannot be followed any further."""


class FrameSplitter:
    """Cuts one connection's stream into frames."""

    __slots__ = ("_filled", "_held", "_max_frame_bytes", "_scratch", "_total", "_trusted_bytes")

    def __init__(self, scratch: memoryview, max_frame_bytes: int, trusted_bytes: int = 0) -> None:
        self._scratch = scratch
        self._max_frame_bytes = max_frame_bytes
        self._trusted_bytes = trusted_bytes
        self._held: bytearray | None = None  # the beginning of a frame, its length prefix included
        self._filled = 0
        self._total = 0  # bytes of the held frame with its prefix; 0 while the prefix is not whole

    @property
    def held_bytes(self) -> int:
        """Memory that this connection holds for a frame that is not whole yet."""
        return len(self._held) if self._held is not None else 0

    def writable(self) -> memoryview:
        """Where the next bytes belong. Frames in the scratch are valid until bytes are received there again."""
        held = self._held
        if held is None:
            return self._scratch
        if self._filled == len(held):
            quick = min(16 * self._filled, _QUICK_GROWTH_BYTES)
            size = max(_MIN_BUFFER_BYTES, 2 * self._filled, quick, self._trusted_bytes)
            grown = bytearray(min(self._total, size))
            grown[: self._filled] = held
            self._held = held = grown
        return memoryview(held)[self._filled :]

    def received(self, count: int) -> list[memoryview]:
        """The frames, without their prefix, that `count` more bytes have made whole."""
        if self._held is not None:
            return self._continue(count)
        scratch = self._scratch
        if 4 <= count == _read_length(scratch)[0] + 4 <= self._max_frame_bytes:
            return [scratch[4:count]]  # one frame and nothing else, as nearly always
        frames = []
        position = 0
        while count - position >= 4:
            (size,) = _read_length(scratch, position)
            start = position + 4
            end = start + size
            if not start <= end <= count or size > self._max_frame_bytes:
                self._check(size)
                break
            frames.append(scratch[start:end])
            position = end
        if position < count:
            self._hold(scratch[position:count])
        return frames

    def _hold(self, rest: memoryview) -> None:
        self._filled = len(rest)
        self._total = 0 if self._filled < 4 else 4 + _read_length(rest)[0]
        self._held = bytearray(rest) if self._total else bytearray(rest).ljust(4, b"\0")

    def _continue(self, count: int) -> list[memoryview]:
        held = self._held
        assert held is not None
        self._filled += count
        if not self._total:
            if self._filled < 4:
                return []
            (size,) = _read_length(held)
            self._check(size)
            self._total = 4 + size
            if size:
                return []
        if self._filled < self._total:
            return []
        self._held = None
        return [memoryview(held)[4:]]

    def _check(self, size: int) -> None:
        if not 0 <= size <= self._max_frame_bytes:
            raise FrameError(
                f"a frame of {size} bytes was announced; at most {self._max_frame_bytes} are allowed "
                "(socket.request.max.bytes); is the peer speaking another protocol?"
            )
