"""The loops over single records that compaction takes: which record of a key is the newest, and which ones to keep.

The newest offset of every key is kept in one buffer of a fixed size, an open-addressing table of slots of 24 bytes:

    digest of the key, 16 bytes | offset + 1, or 0 where the slot is free i64

Two keys with one digest would make one of them disappear, so the digest is keyed: nobody can look for such keys. The
same rules hold as in `codec`, with which this is compiled.
"""

from __future__ import annotations

from hashlib import blake2s

from barnabas.records import uncompiled as cython
from barnabas.records.batch import HEADER_SIZE, NO_TIMESTAMP, BatchHeader
from barnabas.records.codec import LARGEST, Cursor, put_varint, read_varint, varint_size
from barnabas.records.uncompiled import Bytes, MutableInt64s, PyByteArray_FromStringAndSize, memcpy

# The build puts other imports in place of what stands above (see setup.py).

SLOT_BYTES = 24
DIGEST_BYTES = 16
LONGEST_VARLONG = cython.declare(cython.Py_ssize_t, 10)


@cython.final
@cython.cclass
class OffsetMap:
    """The newest offset of every key that was put in; full when as many slots are taken as it may fill."""

    slots: MutableInt64s
    words: cython.Py_ssize_t
    room: cython.Py_ssize_t
    taken: cython.Py_ssize_t
    secret: bytes
    high: cython.longlong  # the digest that was last looked for
    low: cython.longlong

    def __init__(self, buffer_bytes: int, load_factor: float, secret: bytes) -> None:
        count = max(buffer_bytes // SLOT_BYTES, 2)
        self.slots = memoryview(bytearray(count * SLOT_BYTES)).cast("q")
        self.words = 3 * count
        self.room = max(min(int(count * load_factor), count - 1), 1)  # one stays free, where a search ends
        self.taken = 0
        self.secret = secret

    def __len__(self) -> int:
        return self.taken

    @cython.cfunc
    @cython.exceptval(-1)
    def find(self, key: bytes) -> cython.Py_ssize_t:
        """The first word of the slot of a key, or of the free slot that it would take."""
        digest: bytes = blake2s(key, digest_size=DIGEST_BYTES, key=self.secret).digest()
        if cython.compiled:
            p: cython.p_const_uchar = digest
            memcpy(cython.address(self.high), p, 8)
            memcpy(cython.address(self.low), cython.address(p[8]), 8)
        else:
            self.high = int.from_bytes(digest[:8], "little", signed=True)
            self.low = int.from_bytes(digest[8:], "little", signed=True)
        word: cython.Py_ssize_t = 3 * ((self.high & LARGEST) % (self.words // 3))
        while self.slots[word + 2] != 0 and (self.slots[word] != self.high or self.slots[word + 1] != self.low):
            word += 3
            if word == self.words:
                word = 0
        return word

    def offset_of(self, key: bytes) -> int:
        """The newest offset of a key, or -1."""
        newest: cython.longlong = self.slots[self.find(key) + 2] - 1
        return newest

    def index(self, section: Bytes, header: BatchHeader, from_offset: int) -> int:
        """Put in the keys of a batch, from an offset on; the last offset that is in, short of the batch's if full."""
        c: Cursor = Cursor(section, header)
        first: cython.longlong = min(from_offset, LARGEST)
        word: cython.Py_ssize_t
        while c.next():
            if c.offset < first or c.key_length < 0:
                continue
            word = self.find(c.p[c.key_at : c.key_at + c.key_length])
            if self.slots[word + 2] == 0:
                if self.taken == self.room:
                    return c.offset - 1
                self.taken += 1
                self.slots[word] = self.high
                self.slots[word + 1] = self.low
            self.slots[word + 2] = c.offset + 1
        last: int = header.last_offset
        return last


def retain(
    section: Bytes, header: BatchHeader, newest: OffsetMap, latest_offset: int, keep_tombstones: bool
) -> tuple[int, int, bool, bytearray]:
    """The records of a batch that compaction keeps: the newest of their key, and all past the last that was indexed.

    Their number, their greatest timestamp, whether a tombstone is among them, and unless they are all of the batch
    their bytes, unchanged, after room for a header.
    """
    c: Cursor = Cursor(section, header)
    latest: cython.longlong = min(latest_offset, LARGEST)
    tombstones_too: cython.bint = keep_tombstones
    kept: cython.Py_ssize_t = 0
    max_timestamp: cython.longlong = NO_TIMESTAMP
    has_tombstones: cython.bint = False
    target: bytearray = bytearray()
    size: cython.Py_ssize_t = 0
    run: cython.Py_ssize_t = 0  # where the records to keep begin that are not copied yet
    begin: cython.Py_ssize_t = 0
    while c.next():
        if c.offset > latest or (
            c.key_length >= 0
            and (c.value_length >= 0 or tombstones_too)
            and c.offset >= newest.slots[newest.find(c.p[c.key_at : c.key_at + c.key_length]) + 2] - 1
        ):
            kept += 1
            if c.timestamp > max_timestamp:
                max_timestamp = c.timestamp
            if c.value_length < 0:
                has_tombstones = True
        else:
            if size == 0:
                target = new_buffer(HEADER_SIZE + c.end)
                size = HEADER_SIZE
            size = copy(target, size, c.p, run, begin)
            run = c.position
        begin = c.position
    if size > 0:
        size = copy(target, size, c.p, run, c.end)
        del target[size:]
    return kept, max_timestamp, has_tombstones, target


def rebase(section: Bytes, header: BatchHeader, base_timestamp: int) -> bytearray:
    """The records of a batch, after room for a header, with timestamps that count from another base."""
    c: Cursor = Cursor(section, header)
    base: cython.longlong = base_timestamp
    delta: cython.longlong
    start: cython.Py_ssize_t
    rest: cython.Py_ssize_t
    begin: cython.Py_ssize_t = 0
    position: cython.Py_ssize_t = HEADER_SIZE
    target: bytearray = new_buffer(HEADER_SIZE + c.end + c.remaining * 2 * LONGEST_VARLONG)
    p: cython.p_uchar = target
    while c.next():
        delta, start = read_varint(c.p, begin, c.end, 32)  # the length, which changes
        delta, rest = read_varint(c.p, start + 1, c.end, 64)
        delta = c.timestamp - base
        position = put_varint(p, position, 1 + varint_size(delta) + c.position - rest)
        p[position] = c.p[start]
        position = put_varint(p, position + 1, delta)
        position = copy(target, position, c.p, rest, c.position)
        begin = c.position
    del target[position:]
    return target


@cython.cfunc
def new_buffer(size: cython.Py_ssize_t) -> bytearray:
    """Of bytes that may be anything."""
    return PyByteArray_FromStringAndSize(cython.NULL, size) if cython.compiled else bytearray(size)


@cython.cfunc
@cython.exceptval(-1)
def copy(
    target: bytearray,
    position: cython.Py_ssize_t,
    source: cython.p_const_uchar,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Copy a range of bytes, and give where the copy ends."""
    if cython.compiled:
        p: cython.p_uchar = target
        memcpy(cython.address(p[position]), cython.address(source[start]), end - start)
    else:
        target[position : position + end - start] = source[start:end]
    return position + end - start
