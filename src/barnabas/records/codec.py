"""The loops over single records: out of a batch into objects, and the other way.

    length varint | attributes i8 | timestamp_delta varlong | offset_delta varint | key_length varint | key
    value_length varint | value | header_count varint | (key_length varint | key | value_length varint | value)*

This is Python that Cython also compiles, together with `column_codec` and `compaction_codec`, into `_codec_c`; `engine`
chooses between the two, and the same tests hold both to the same outcome. So integers here must fit C's, and every
length is checked before it is used: bytes that lie are a CorruptBatch, never a read outside the batch. The records of a
batch, decompressed, are called its section.

A read that fails returns a position past the end, from which every further read fails too; one check then covers many.
"""

from __future__ import annotations

from barnabas.records import uncompiled as cython
from barnabas.records.batch import LOG_APPEND_TIME, BatchHeader, CorruptBatch
from barnabas.records.record import Header, Record
from barnabas.records.uncompiled import Bytes, MutableBytes, memcpy

# The build puts other imports in place of what stands above (see setup.py).

SMALLEST_RECORD = cython.declare(cython.longlong, 7)  # every field in one byte, nothing in it
LARGEST = cython.declare(
    cython.longlong, 0x3FFFFFFFFFFFFFFF
)  # of offsets, timestamps and their deltas, so that a sum of two fits 64 bits
LOW_32 = cython.declare(cython.ulonglong, 0xFFFFFFFF)
Pending = tuple[int, int, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]]
"""A record to be encoded: offset delta, timestamp, key, value, headers."""

_new_tuple = tuple.__new__  # builds a Record without going through its Python-level constructor


# reading


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def read_varint(
    p: cython.p_const_uchar, position: cython.Py_ssize_t, end: cython.Py_ssize_t, bits: cython.Py_ssize_t
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """A zigzag number of 32 or 64 bits, and where it ends. Bits beyond the width are dropped, as Java does."""
    raw: cython.ulonglong
    byte: cython.ulonglong
    shift: cython.Py_ssize_t
    if position < end:
        raw = p[position]
        if raw < 0x80:
            return (raw >> 1) ^ -(raw & 1), position + 1
        raw &= 0x7F
        shift = 7
        while shift < bits:
            position += 1
            if position >= end:
                break
            byte = p[position]
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                if bits == 32:
                    raw &= LOW_32
                elif not cython.compiled:
                    raw &= 0xFFFFFFFFFFFFFFFF
                return (raw >> 1) ^ -(raw & 1), position + 1
            shift += 7
    return 0, end + 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _skip_headers(
    p: cython.p_const_uchar, position: cython.Py_ssize_t, end: cython.Py_ssize_t, count: cython.longlong
) -> cython.Py_ssize_t:
    """Where `count` headers end; past the end if they do not fit."""
    length: cython.longlong
    while count > 0 and position <= end:
        length, position = read_varint(p, position, end, 32)
        if length < 0:
            return end + 1
        length, position = read_varint(p, position + length, end, 32)
        if length < -1:
            return end + 1
        if length > 0:
            position += length
        count -= 1
    return position


@cython.final
@cython.cclass
class Cursor:
    """Walks the records of one batch; what it stands on has been checked to the last byte."""

    header: BatchHeader
    section: Bytes
    p: cython.p_const_uchar
    position: cython.Py_ssize_t
    end: cython.Py_ssize_t
    remaining: cython.Py_ssize_t
    base_offset: cython.longlong
    last_offset_delta: cython.longlong
    base_timestamp: cython.longlong
    append_time: cython.bint
    offset: cython.longlong
    timestamp: cython.longlong
    key_at: cython.Py_ssize_t
    key_length: cython.longlong  # -1: null
    value_at: cython.Py_ssize_t
    value_length: cython.longlong
    headers_at: cython.Py_ssize_t
    header_count: cython.longlong

    def __init__(self, section: Bytes, header: BatchHeader) -> None:
        base_timestamp: cython.longlong
        max_timestamp: cython.longlong
        attributes: cython.longlong
        self.base_offset, _, _, _, _, attributes, self.last_offset_delta, base_timestamp, max_timestamp = header[:9]
        self.remaining = header.record_count
        self.end = len(section)
        if self.remaining < 0 or self.remaining * SMALLEST_RECORD > self.end:
            raise CorruptBatch(f"{self.end} bytes of records cannot hold the {self.remaining} that the header counts")
        if self.base_offset < 0 or self.base_offset > LARGEST or self.last_offset_delta < 0:
            raise CorruptBatch(f"offsets {self.base_offset} + 0 to {self.last_offset_delta} are out of range")
        if base_timestamp < -LARGEST or base_timestamp > LARGEST:
            raise CorruptBatch(f"base timestamp {base_timestamp} is out of range")
        self.header = header
        self.section = section
        if cython.compiled:
            self.p = cython.address(self.section[0])
        else:
            self.p = bytes(section)  # indexing bytes is faster than indexing a memoryview
        self.position = 0
        self.append_time = attributes & LOG_APPEND_TIME != 0
        self.base_timestamp = max_timestamp if self.append_time else base_timestamp

    @cython.cfunc
    @cython.exceptval(-1)
    def next(self) -> cython.bint:
        """Step on to the next record; False after the last."""
        length: cython.longlong
        timestamp_delta: cython.longlong
        offset_delta: cython.longlong
        position: cython.Py_ssize_t = self.position
        end: cython.Py_ssize_t = self.end
        p: cython.p_const_uchar = self.p
        if self.remaining == 0:
            if position != end:
                raise self.corrupt(f"{end - position} bytes are left over after its last record")
            return False
        length, position = read_varint(p, position, end, 32)
        if length < 0 or position + length > end:
            raise self.corrupt("a record is longer than what is left")
        end = position + length
        timestamp_delta, position = read_varint(p, position + 1, end, 64)  # a record's attributes are unused
        offset_delta, position = read_varint(p, position, end, 32)
        self.key_length, position = read_varint(p, position, end, 32)
        self.key_at = position
        if self.key_length > 0:
            position += self.key_length
        self.value_length, position = read_varint(p, position, end, 32)
        self.value_at = position
        if self.value_length > 0:
            position += self.value_length
        self.header_count, position = read_varint(p, position, end, 32)
        self.headers_at = position
        if self.header_count > 0:
            position = _skip_headers(p, position, end, self.header_count)
        if position != end or self.key_length < -1 or self.value_length < -1 or self.header_count < 0:
            raise self.corrupt("a length inside a record does not fit")
        if offset_delta < 0 or offset_delta > self.last_offset_delta:
            raise self.corrupt(f"a record has offset delta {offset_delta}; the last is {self.last_offset_delta}")
        if self.append_time:
            timestamp_delta = 0
        elif timestamp_delta > LARGEST or timestamp_delta < -LARGEST:
            raise self.corrupt(f"a record has timestamp delta {timestamp_delta}")
        self.offset = self.base_offset + offset_delta
        self.timestamp = self.base_timestamp + timestamp_delta
        self.position = position
        self.remaining -= 1
        return True

    @cython.cfunc
    def corrupt(self, what: str) -> CorruptBatch:
        index = self.header.record_count - self.remaining
        return CorruptBatch(
            f"batch at offset {self.base_offset}, record {index} of {self.header.record_count} "
            f"at byte {self.position} of {self.end}: {what}"
        )

    @cython.cfunc
    def headers(self) -> tuple[Header, ...]:
        headers: list[Header] = []
        length: cython.longlong
        position: cython.Py_ssize_t = self.headers_at
        end: cython.Py_ssize_t = self.position
        p: cython.p_const_uchar = self.p
        while position < end:
            length, position = read_varint(p, position, end, 32)
            key = p[position : position + length].decode("utf-8", "replace")
            length, position = read_varint(p, position + length, end, 32)
            if length < 0:
                headers.append((key, None))
            else:
                headers.append((key, p[position : position + length]))
                position += length
        return tuple(headers)


def decode_records(section: Bytes, header: BatchHeader, from_offset: int) -> list[Record]:
    """The records of one batch, without those below an offset."""
    c: Cursor = Cursor(section, header)
    p: cython.p_const_uchar = c.p
    first: cython.longlong = min(from_offset, LARGEST)
    records: list[Record] = []
    while c.next():
        if c.offset < first:
            continue
        fields = (
            c.offset,
            c.timestamp,
            p[c.key_at : c.key_at + c.key_length] if c.key_length >= 0 else None,
            p[c.value_at : c.value_at + c.value_length] if c.value_length >= 0 else None,
            c.headers() if c.header_count > 0 else (),
        )
        records.append(_new_tuple(Record, fields))
    return records


@cython.final
@cython.cclass
class RecordStream:
    """The same, some at a time, as instances of `kind`: a consumer's named tuple, with topic and partition first."""

    cursor: Cursor
    first: cython.longlong
    kind: type
    topic: str
    partition: int

    def __init__(
        self, section: Bytes, header: BatchHeader, from_offset: int, kind: type, topic: str, partition: int
    ) -> None:
        self.cursor = Cursor(section, header)
        self.first = min(from_offset, LARGEST)
        self.kind = kind
        self.topic = topic
        self.partition = partition

    def take(self, count: int) -> list[object]:
        """Up to so many more; none at the end."""
        c: Cursor = self.cursor
        p: cython.p_const_uchar = c.p
        left: cython.Py_ssize_t = count
        records: list[object] = []
        while left > 0 and c.next():
            if c.offset < self.first:
                continue
            fields = (
                self.topic,
                self.partition,
                c.offset,
                c.timestamp,
                p[c.key_at : c.key_at + c.key_length] if c.key_length >= 0 else None,
                p[c.value_at : c.value_at + c.value_length] if c.value_length >= 0 else None,
                c.headers() if c.header_count > 0 else (),
            )
            records.append(_new_tuple(self.kind, fields))
            left -= 1
        return records


def invalid_records(
    section: Bytes, header: BatchHeader, require_key: bool, oldest_ms: int, newest_ms: int, limit: int
) -> tuple[int, list[tuple[int, int | None]]]:
    """How many records lack a required key or have a time out of range, and which; the whole section is checked.

    Of the first `limit` the index is returned, with the timestamp that is out of range, or None for a missing key.
    """
    c: Cursor = Cursor(section, header)
    keys_required: cython.bint = require_key
    oldest: cython.longlong = oldest_ms
    newest: cython.longlong = newest_ms
    most: cython.Py_ssize_t = limit
    index: cython.Py_ssize_t = 0
    count: cython.Py_ssize_t = 0
    found: list[tuple[int, int | None]] = []
    while c.next():
        if c.key_length < 0 and keys_required:
            if count < most:
                found.append((index, None))
            count += 1
        elif c.timestamp >= 0 and (c.timestamp < oldest or c.timestamp > newest):
            if count < most:
                found.append((index, c.timestamp))
            count += 1
        index += 1
    return count, found


# writing


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def varint_size(value: cython.longlong) -> cython.Py_ssize_t:
    raw: cython.ulonglong = (value << 1) ^ (value >> 63)
    size: cython.Py_ssize_t = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_varint(p: cython.p_uchar, position: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    raw: cython.ulonglong = (value << 1) ^ (value >> 63)
    while raw >= 0x80:
        p[position] = (raw & 0x7F) | 0x80
        position += 1
        raw >>= 7
    p[position] = raw
    return position + 1


@cython.cfunc
@cython.inline
@cython.exceptval(-1)
def _sized(data: bytes | None) -> cython.Py_ssize_t:
    """Bytes that a key or value takes with its length."""
    if data is None:
        return 1
    return varint_size(len(data)) + len(data)


@cython.cfunc
@cython.inline
@cython.exceptval(-1)
def _put_sized(p: cython.p_uchar, position: cython.Py_ssize_t, data: bytes | None) -> cython.Py_ssize_t:
    if data is None:
        return put_varint(p, position, -1)
    size: cython.Py_ssize_t = len(data)
    source: cython.p_const_uchar = data
    position = put_varint(p, position, size)
    if cython.compiled:
        memcpy(cython.address(p[position]), source, size)
    else:
        p[position : position + size] = source
    return position + size


@cython.cfunc
@cython.exceptval(-1)
def _body_size(record: Pending, base_timestamp: cython.longlong) -> cython.Py_ssize_t:
    offset_delta: cython.longlong
    timestamp: cython.longlong
    offset_delta, timestamp, key, value, headers = record
    size: cython.Py_ssize_t = 1 + varint_size(timestamp - base_timestamp) + varint_size(offset_delta)
    size += _sized(key) + _sized(value) + varint_size(len(headers))
    for header_key, header_value in headers:
        size += _sized(header_key) + _sized(header_value)
    return size


def records_size(records: list[Pending], start: int, base_timestamp: int) -> int:
    """The bytes that the records from index `start` on will take."""
    total: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    size: cython.Py_ssize_t
    base: cython.longlong = base_timestamp
    for index in range(start, len(records)):
        size = _body_size(records[index], base)
        total += varint_size(size) + size
    return total


def encode_records(target: MutableBytes, start: int, records: list[Pending], base_timestamp: int) -> int:
    """Write the records into `target` from `start` on; where they end."""
    p: cython.p_uchar
    offset_delta: cython.longlong
    timestamp: cython.longlong
    size: cython.Py_ssize_t
    base: cython.longlong = base_timestamp
    position: cython.Py_ssize_t = start
    room: cython.Py_ssize_t = len(target)
    if cython.compiled:
        p = cython.address(target[0])
    else:
        p = target
    for record in records:
        offset_delta, timestamp, key, value, headers = record
        size = _body_size(record, base)
        if position + varint_size(size) + size > room:
            raise ValueError(f"{room} bytes are too few for the records")
        position = put_varint(p, position, size)
        p[position] = 0
        position = put_varint(p, position + 1, timestamp - base)
        position = put_varint(p, position, offset_delta)
        position = _put_sized(p, position, key)
        position = _put_sized(p, position, value)
        position = put_varint(p, position, len(headers))
        for header_key, header_value in headers:
            position = _put_sized(p, position, header_key)
            position = _put_sized(p, position, header_value)
    return position
