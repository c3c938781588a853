"""The loops over single records that fill columns, laid out as Arrow lays them out.

A sink grows as rows come in; what it has reserved but not yet filled may be anything. The same rules hold as in
`codec`, with which this is compiled.
"""

from __future__ import annotations

from barnabas.records import uncompiled as cython
from barnabas.records.batch import BatchHeader
from barnabas.records.codec import LARGEST, Cursor, read_varint
from barnabas.records.uncompiled import (
    Bytes,
    Int64s,
    MutableBytes,
    MutableInt32s,
    MutableInt64s,
    PyByteArray_FromStringAndSize,
    memcpy,
)

# The build puts other imports in place of what stands above (see setup.py).

SMALLEST_BUFFER = 64 * 1024


def _grown(old: bytearray, needed: int) -> bytearray:
    """A larger buffer with the same beginning; what follows may be anything."""
    size = max(needed, 2 * len(old), SMALLEST_BUFFER)
    new = PyByteArray_FromStringAndSize(cython.NULL, size) if cython.compiled else bytearray(size)
    with memoryview(new) as target:
        target[: len(old)] = old
    return new


@cython.final
@cython.cclass
class IntegerSink:
    """A column of 64-bit integers, with room for as many rows as were reserved."""

    buffer: bytearray
    view: MutableInt64s
    room: cython.Py_ssize_t

    def __init__(self) -> None:
        self.buffer = bytearray(8)
        self.view = memoryview(self.buffer).cast("q")
        self.room = 1

    @cython.cfunc
    @cython.exceptval(-1)
    def reserve(self, rows: cython.Py_ssize_t) -> cython.Py_ssize_t:
        if rows > self.room:
            self.buffer = _grown(self.buffer, 8 * rows)
            self.view = memoryview(self.buffer).cast("q")
            self.room = len(self.view)
        return self.room


@cython.final
@cython.cclass
class BinarySink:
    """A column of byte strings: row i is data[ends[i]:ends[i + 1]], and null where bit i of `bits` is 0."""

    ends: IntegerSink
    buffer: bytearray
    data: MutableBytes
    room: cython.Py_ssize_t
    size: cython.Py_ssize_t
    validity: bytearray
    bits: MutableBytes

    def __init__(self) -> None:
        self.ends = IntegerSink()
        self.size = 0
        self.validity = self.bits = bytearray()
        self.buffer = self.data = bytearray()
        self.room = 0

    @cython.cfunc
    @cython.exceptval(-1)
    def reserve(self, rows: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Make room for so many rows in all, of whatever size."""
        if rows > 8 * len(self.bits):
            self.validity = self.bits = _grown(self.validity, (rows + 7) // 8)
        return self.ends.reserve(rows + 1)

    @cython.cfunc
    @cython.exceptval(-1)
    def begin(self, row: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Go on at a row, forgetting what lies behind it, with room up to another."""
        self.reserve(end)
        self.size = self.ends.view[row]
        return self.size

    @cython.cfunc
    @cython.exceptval(-1)
    def reserve_bytes(self, size: cython.Py_ssize_t) -> cython.Py_ssize_t:
        if size > self.room:
            self.buffer = self.data = _grown(self.buffer, size)
            self.room = len(self.buffer)
        return self.room

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def put(
        self, row: cython.Py_ssize_t, p: cython.p_const_uchar, start: cython.Py_ssize_t, length: cython.longlong
    ) -> cython.Py_ssize_t:
        size: cython.Py_ssize_t = self.size
        if length < 0:
            self.bits[row >> 3] &= ~(1 << (row & 7))
        else:
            self.bits[row >> 3] |= 1 << (row & 7)
            if size + length > self.room:
                self.reserve_bytes(size + length)
            if cython.compiled:
                memcpy(cython.address(self.data[size]), cython.address(p[start]), length)
            else:
                self.data[size : size + length] = p[start : start + length]
            size += length
            self.size = size
        self.ends.view[row + 1] = size
        return size

    def append(self, row: int, data: bytes) -> None:
        self.reserve(row + 1)
        self.put(row, data, 0, len(data))

    def buffers(self) -> tuple[bytearray, bytearray, bytearray]:
        """Data, ends, validity."""
        return self.buffer, self.ends.buffer, self.validity


@cython.final
@cython.cclass
class ColumnSink:
    """Takes the wanted columns of batch after batch.

    A batch counts once it has been decoded to its end; what a corrupt one leaves behind `rows` is written over.
    """

    rows: cython.Py_ssize_t
    wants_key: cython.bint
    wants_value: cython.bint
    wants_offset: cython.bint
    wants_timestamp: cython.bint
    wants_headers: cython.bint
    key: BinarySink
    value: BinarySink
    offset: IntegerSink
    timestamp: IntegerSink
    header_ends: IntegerSink
    header_key: BinarySink
    header_value: BinarySink

    def __init__(self, key: bool, value: bool, offset: bool, timestamp: bool, headers: bool) -> None:
        self.rows = 0
        self.wants_key, self.wants_value, self.wants_headers = key, value, headers
        self.wants_offset, self.wants_timestamp = offset, timestamp
        self.key, self.value = BinarySink(), BinarySink()
        self.offset, self.timestamp = IntegerSink(), IntegerSink()
        self.header_ends, self.header_key, self.header_value = IntegerSink(), BinarySink(), BinarySink()

    def expect(self, value_bytes: int) -> None:
        """Make room for values at once, where their size is known, instead of step by step."""
        if self.wants_value:
            self.value.reserve_bytes(self.value.size + value_bytes)

    def decode(self, section: Bytes, header: BatchHeader, from_offset: int, until_offset: int) -> int:
        """Add the records of one batch whose offsets are in the range; the number of rows so far."""
        c: Cursor = Cursor(section, header)
        first: cython.longlong = max(0, min(from_offset, LARGEST))
        last: cython.longlong = max(0, min(until_offset, LARGEST))
        row: cython.Py_ssize_t = self.rows
        end: cython.Py_ssize_t = row + c.remaining
        header_row: cython.Py_ssize_t = 0
        if self.wants_key:
            self.key.begin(row, end)
        if self.wants_value:
            self.value.begin(row, end)
        if self.wants_offset:
            self.offset.reserve(end)
        if self.wants_timestamp:
            self.timestamp.reserve(end)
        if self.wants_headers:
            self.header_ends.reserve(end + 1)
            header_row = self.header_ends.view[row]
            self.header_key.begin(header_row, header_row)
            self.header_value.begin(header_row, header_row)
        while c.next():
            if c.offset < first or c.offset >= last:
                continue
            if self.wants_key:
                self.key.put(row, c.p, c.key_at, c.key_length)
            if self.wants_value:
                self.value.put(row, c.p, c.value_at, c.value_length)
            if self.wants_offset:
                self.offset.view[row] = c.offset
            if self.wants_timestamp:
                self.timestamp.view[row] = c.timestamp
            row += 1
            if self.wants_headers:
                if c.header_count > 0:
                    header_row = self.put_headers(header_row, c)
                self.header_ends.view[row] = header_row
        self.rows = row
        return row

    @cython.cfunc
    @cython.exceptval(-1)
    def put_headers(self, row: cython.Py_ssize_t, c: Cursor) -> cython.Py_ssize_t:
        length: cython.longlong
        position: cython.Py_ssize_t = c.headers_at
        self.header_key.reserve(row + c.header_count)
        self.header_value.reserve(row + c.header_count)
        while position < c.position:
            length, position = read_varint(c.p, position, c.position, 32)
            self.header_key.put(row, c.p, position, length)
            length, position = read_varint(c.p, position + length, c.position, 32)
            self.header_value.put(row, c.p, position, length)
            if length > 0:
                position += length
            row += 1
        return row

    def integers(self) -> tuple[bytearray, bytearray, bytearray]:
        """Offsets, timestamps, and where the headers of each row end."""
        return self.offset.buffer, self.timestamp.buffer, self.header_ends.buffer

    def binaries(self) -> tuple[BinarySink, BinarySink, BinarySink, BinarySink]:
        return self.key, self.value, self.header_key, self.header_value


def narrow(wide: Int64s, count: int) -> bytearray:
    """The first numbers of 64 bits in 32 bits each, as Arrow's ordinary binary type counts."""
    index: cython.Py_ssize_t
    result = bytearray(4 * count)
    view: MutableInt32s = memoryview(result).cast("i")
    for index in range(count):
        view[index] = wide[index]
    return result
