"""What a producer does with every single record: find its key's partition, and write it at the end of a batch.

A record is encoded as it is appended, straight into the bytes that will be sent: nothing is kept of it but those and a
light handle. The same rules hold as in `codec`, with which this is compiled.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.records import uncompiled as cython
from barnabas.records.batch import HEADER_SIZE, NO_TIMESTAMP
from barnabas.records.codec import LARGEST, LOW_32, _put_sized, _sized, put_varint, varint_size
from barnabas.records.record import Header
from barnabas.records.uncompiled import PyByteArray_AS_STRING, PyByteArray_Resize

# The build puts other imports in place of what stands above (see setup.py).

FIRST_BYTES = cython.declare(cython.Py_ssize_t, 1024)
HASH_SEED = cython.declare(cython.ulonglong, 0x9747B28C)
HASH_MIX = cython.declare(cython.ulonglong, 0x5BD1E995)


@cython.no_gc
@cython.final
@cython.cclass
class Handle:
    """What a caller keeps of a record: what holds it, its place there, and its time. `pending` answers for it.

    There may be millions, which nothing that they hold refers to: the collector need not look at them.
    """

    pending = cython.declare(object, visibility="public")
    delta = cython.declare(cython.longlong, visibility="public")
    timestamp_ms = cython.declare(cython.longlong, visibility="public")

    @staticmethod
    def of(pending: object, delta: int, timestamp_ms: int) -> Handle:
        handle: Handle = Handle.__new__(Handle)
        handle.pending, handle.delta, handle.timestamp_ms = pending, delta, timestamp_ms
        return handle

    @property
    def topic(self) -> object:
        return self.pending.holder_of(self).partition.topic

    @property
    def partition(self) -> object:
        return self.pending.holder_of(self).partition

    @property
    def is_done(self) -> object:
        return self.pending.holder_of(self).is_done

    def __await__(self) -> object:
        return self.pending.answer(self)


@cython.final
@cython.cclass
class RecordBuffer:
    """The records of one batch behind room for its header; it takes records until `limit` bytes, the first one always.

    Deltas count from the first record: offset deltas 0, 1, 2, ..., timestamp deltas from its timestamp.
    """

    data: bytearray
    limit: cython.Py_ssize_t
    position: cython.Py_ssize_t
    count: cython.Py_ssize_t
    base_timestamp: cython.longlong
    max_timestamp: cython.longlong

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.data = bytearray(min(limit, FIRST_BYTES) + HEADER_SIZE)
        self.position = HEADER_SIZE
        self.count = 0
        self.base_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP

    def append(
        self, pending: object, key: object, value: object, headers: Iterable[Header], timestamp: cython.longlong
    ) -> Handle | None:
        """Add a record of `pending`; None if it does not fit. One that is refused leaves the batch as it was."""
        handle: Handle
        p: cython.p_uchar
        base: cython.longlong = self.base_timestamp if self.count else timestamp
        body: cython.Py_ssize_t
        end: cython.Py_ssize_t
        position: cython.Py_ssize_t = self.position
        delta: cython.Py_ssize_t = self.count
        if timestamp < NO_TIMESTAMP or timestamp > LARGEST:
            raise ValueError(f"timestamp {timestamp} is out of range")
        key_bytes: bytes | None = as_bytes(key, "key")
        value_bytes: bytes | None = as_bytes(value, "value")
        encoded: list[tuple[bytes, bytes | None]] | None = encode_headers(headers) if headers else None
        body = 1 + varint_size(timestamp - base) + varint_size(delta) + _sized(key_bytes) + _sized(value_bytes)
        if encoded is None:
            body += 1
        else:
            body += varint_size(len(encoded))
            for name, content in encoded:
                body += _sized(name) + _sized(content)
        end = position + varint_size(body) + body
        if end > self.limit and delta:
            return None
        if end > len(self.data):
            self.grow(end)
        if cython.compiled:
            p = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.data))
        else:
            p = self.data
        position = put_varint(p, position, body)
        p[position] = 0  # a record's attributes are unused
        position = put_varint(p, position + 1, timestamp - base)
        position = put_varint(p, position, delta)
        position = _put_sized(p, position, key_bytes)
        position = _put_sized(p, position, value_bytes)
        if encoded is None:
            p[position] = 0
            position += 1
        else:
            position = put_varint(p, position, len(encoded))
            for name, content in encoded:
                position = _put_sized(p, position, name)
                position = _put_sized(p, position, content)
        self.position = position
        self.count = delta + 1
        self.base_timestamp = base
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        handle = Handle.__new__(Handle)
        handle.pending = pending
        handle.delta = delta
        handle.timestamp_ms = timestamp
        return handle

    @cython.cfunc
    def grow(self, needed: cython.Py_ssize_t) -> None:
        """Double the room, but not beyond the limit unless one record demands it."""
        size: cython.Py_ssize_t = max(needed, min(2 * len(self.data), self.limit))
        if cython.compiled:
            PyByteArray_Resize(self.data, size)  # what is new is not cleared: it will be written
        else:
            self.data.extend(bytes(size - len(self.data)))

    def take(self) -> tuple[bytearray, int, int, int]:
        """The bytes with room for the header, how many records they are, and the first and the greatest timestamp."""
        data = self.data
        del data[self.position :]
        self.data = bytearray()
        return data, self.count, self.base_timestamp, self.max_timestamp

    def __len__(self) -> int:
        return self.count

    def size(self) -> int:
        """Bytes so far, the header's included."""
        return self.position


@cython.cfunc
@cython.inline
def as_bytes(data: object, what: str) -> bytes | None:
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise TypeError(f"a record's {what} must be bytes or None, not {type(data).__name__}; is a serializer missing?")


@cython.cfunc
def encode_headers(headers: Iterable[Header]) -> list[tuple[bytes, bytes | None]]:
    try:
        pairs = [(name.encode(), content) for name, content in headers]
    except (AttributeError, TypeError, ValueError) as error:
        raise TypeError(f"a record's headers must be pairs like ('trace', b'7'), not {headers!r:.100}") from error
    return [(name, as_bytes(content, "header")) for name, content in pairs]


@cython.cfunc
@cython.exceptval(check=False)
def murmur2_between(p: cython.p_const_uchar, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.ulonglong:
    """The 32-bit MurmurHash2 with Kafka's seed."""
    word: cython.ulonglong
    position: cython.Py_ssize_t = start
    left: cython.Py_ssize_t
    hashed: cython.ulonglong = HASH_SEED ^ (end - start)
    while position + 4 <= end:
        word = p[position + 3]
        word = word << 8 | p[position + 2]
        word = word << 8 | p[position + 1]
        word = word << 8 | p[position]
        word = word * HASH_MIX & LOW_32
        word = (word ^ word >> 24) * HASH_MIX & LOW_32
        hashed = (hashed * HASH_MIX & LOW_32) ^ word
        position += 4
    left = end - position
    if left > 0:
        word = p[position]
        if left > 1:
            word |= p[position + 1] << 8
        if left > 2:
            word |= p[position + 2] << 16
        hashed = (hashed ^ word) * HASH_MIX & LOW_32
    hashed = (hashed ^ hashed >> 13) * HASH_MIX & LOW_32
    return hashed ^ hashed >> 15


def murmur2(key: bytes) -> int:
    """The hash by which every Kafka client finds a key's partition, as an unsigned number."""
    p: cython.p_const_uchar = key
    return murmur2_between(p, 0, len(key))
