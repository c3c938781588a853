"""The steps by which Avro data become rows of columns, laid out as Arrow lays them out.

`avro_plans` makes a tree of them, once for each pair of a writer's and a reader's schema. A step reads one datum of the
writer and appends one row to the reader's column, or skips the datum. So a value is read from front to back without a
look at any schema. A tree has no cycles: what a value can nest is bounded by the schema. No block has more items than
the value has bytes left. The same rules hold as in `codec`, with which this is compiled.
"""

from __future__ import annotations

import struct

from barnabas.records import uncompiled as cython
from barnabas.records.avro_decoder import AvroCursor, AvroStep, chained
from barnabas.records.avro_decoder import AvroDecoder as AvroDecoder
from barnabas.records.column_codec import BinarySink
from barnabas.records.uncompiled import memcmp, memcpy
from barnabas.records.utf8 import is_utf8
from barnabas.records.value_sinks import ValueSink

# The build puts other imports in place of what stands above (see setup.py).

FEW_MAP_ENTRIES = cython.declare(cython.longlong, 16)  # so few keys are compared one by one


@cython.final
@cython.cclass
class AppendNull(AvroStep):
    sink: ValueSink

    def __init__(self, sink: ValueSink) -> None:
        self.sink = sink

    @cython.cfunc
    @cython.exceptval(-1)
    def read(self, cursor: AvroCursor) -> cython.longlong:
        self.sink.append_null()
        return 1


@cython.final
@cython.cclass
class ReadBoolean(AvroStep):
    sink: ValueSink

    def __init__(self, sink: ValueSink) -> None:
        self.sink = sink

    @cython.cfunc
    @cython.exceptval(-1)
    def read(self, cursor: AvroCursor) -> cython.longlong:
        position: cython.Py_ssize_t = cursor.position
        if position >= cursor.end:
            return 0
        cursor.position = position + 1
        return self.sink.append_integer(cursor.p[position] != 0)


@cython.final
@cython.cclass
class ReadInteger(AvroStep):
    """A number between bounds, times a factor (of milliseconds: 1000)."""

    sink: ValueSink
    low: cython.longlong
    high: cython.longlong
    factor: cython.longlong

    def __init__(self, sink: ValueSink, low: int, high: int, factor: int = 1) -> None:
        self.sink, self.low, self.high, self.factor = sink, low, high, factor

    @cython.cfunc
    @cython.exceptval(-1)
    def read(self, cursor: AvroCursor) -> cython.longlong:
        if not cursor.read_long() or cursor.value < self.low or cursor.value > self.high:
            return 0
        return self.sink.append_integer(cursor.value * self.factor)


@cython.final
@cython.cclass
class ReadIntegerAsDouble(AvroStep):
    sink: ValueSink
    low: cython.longlong
    high: cython.longlong

    def __init__(self, sink: ValueSink, low: int, high: int) -> None:
        self.sink, self.low, self.high = sink, low, high

    @cython.cfunc
    @cython.exceptval(-1)
    def read(self, cursor: AvroCursor) -> cython.longlong:
        if not cursor.read_long() or cursor.value < self.low or cursor.value > self.high:
            return 0
        return self.sink.append_double(cursor.value)


@cython.final
@cython.cclass
class ReadFloat(AvroStep):
    sink: ValueSink

    def __init__(self, sink: ValueSink) -> None:
        self.sink = sink

    @cython.cfunc
    @cython.exceptval(-1)
    def read(self, cursor: AvroCursor) -> cython.longlong:
        position: cython.Py_ssize_t = cursor.position
        value: cython.float = 0
        if cursor.end - position < 4:
            return 0
        if cython.compiled:
            memcpy(cython.address(value), cython.address(cursor.p[position]), 4)
        else:
            (value,) = struct.unpack_from("<f", cursor.p, position)
        cursor.position = position + 4
        return self.sink.append_double(value)


@cython.final
@cython.cclass
class ReadDouble(AvroStep):
    sink: ValueSink

    def __init__(self, sink: ValueSink) -> None:
        self.sink = sink

    @cython.cfunc
    @cython.exceptval(-1)
    def read(self, cursor: AvroCursor) -> cython.longlong:
        position: cython.Py_ssize_t = cursor.position
        value: cython.double = 0
        if cursor.end - position < 8:
            return 0
        if cython.compiled:
            memcpy(cython.address(value), cython.address(cursor.p[position]), 8)
        else:
            (value,) = struct.unpack_from("<d", cursor.p, position)
        cursor.position = position + 8
        return self.sink.append_double(value)


@cython.final
@cython.cclass
class ReadBytes(AvroStep):
    """Bytes behind their length; valid UTF-8 if they are text for the writer or the reader."""

    sink: ValueSink
    is_text: cython.bint

    def __init__(self, sink: ValueSink, is_text: bool) -> None:
        self.sink, self.is_text = sink, is_text

    @cython.cfunc
    @cython.exceptval(-1)
    def read(self, cursor: AvroCursor) -> cython.longlong:
        start: cython.Py_ssize_t
        if not cursor.read_length():
            return 0
        start = cursor.position
        cursor.position = start + cursor.value
        if self.is_text and not is_utf8(cursor.p, start, cursor.position):
            return 0
        return self.sink.append_bytes(cursor.p, start, cursor.value)


@cython.final
@cython.cclass
class ReadFixed(AvroStep):
    sink: ValueSink
    size: cython.Py_ssize_t

    def __init__(self, sink: ValueSink, size: int) -> None:
        self.sink, self.size = sink, size

    @cython.cfunc
    @cython.exceptval(-1)
    def read(self, cursor: AvroCursor) -> cython.longlong:
        start: cython.Py_ssize_t = cursor.position
        if cursor.end - start < self.size:
            return 0
        cursor.position = start + self.size
        return self.sink.append_bytes(cursor.p, start, self.size)


@cython.final
@cython.cclass
class ReadDecimal(AvroStep):
    """An unscaled value, big-endian, of a size in bytes that is fixed or, where `size` is -1, stands before it."""

    sink: ValueSink
    size: cython.Py_ssize_t
    low: cython.longlong
    high: cython.longlong

    def __init__(self, sink: ValueSink, size: int, low: int, high: int) -> None:
        self.sink, self.size, self.low, self.high = sink, size, low, high

    @cython.cfunc
    @cython.exceptval(-1)
    def read(self, cursor: AvroCursor) -> cython.longlong:
        size: cython.Py_ssize_t = self.size
        position: cython.Py_ssize_t
        end: cython.Py_ssize_t
        value: cython.longlong = 0
        if size < 0:
            if not cursor.read_length():
                return 0
            size = cursor.value
        position, end = cursor.position, cursor.position + size
        if end > cursor.end:
            return 0
        cursor.position = end
        if size > 0 and cursor.p[position] >= 0x80:
            value = -1
        while end - position > 8:  # nothing but the sign may stand before the last eight bytes
            if cursor.p[position] != value & 0xFF:
                return 0
            position += 1
        if size > 8 and cursor.p[position] >> 7 != value & 1:
            return 0
        while position < end:
            value = value << 8 | cursor.p[position]
            position += 1
        if value < self.low or value > self.high:
            return 0
        return self.sink.append_integer(value)


@cython.final
@cython.cclass
class ReadEnum(AvroStep):
    """`symbols` are what the reader makes of the writer's; None is unsure."""

    sink: ValueSink
    symbols: list[bytes | None]

    def __init__(self, sink: ValueSink, symbols: list[bytes | None]) -> None:
        self.sink, self.symbols = sink, symbols

    @cython.cfunc
    @cython.exceptval(-1)
    def read(self, cursor: AvroCursor) -> cython.longlong:
        symbol: bytes | None
        if not cursor.read_long() or cursor.value < 0 or cursor.value >= len(self.symbols):
            return 0
        symbol = self.symbols[cursor.value]
        if symbol is None:
            return 0
        return self.sink.append_bytes(symbol, 0, len(symbol))


@cython.final
@cython.cclass
class ReadRecord(AvroStep):
    """All fields of the writer in their order, then the defaults of those that only the reader has."""

    sink: ValueSink
    first: AvroStep | None

    def __init__(self, sink: ValueSink, steps: list[AvroStep]) -> None:
        self.sink, self.first = sink, chained(steps)

    @cython.cfunc
    @cython.exceptval(-1)
    def read(self, cursor: AvroCursor) -> cython.longlong:
        step: AvroStep | None = self.first
        self.sink.append_valid()
        while step is not None:
            if not step.read(cursor):
                return 0
            step = step.following
        return 1


@cython.final
@cython.cclass
class ReadArray(AvroStep):
    sink: ValueSink
    item_sink: ValueSink
    item: AvroStep

    def __init__(self, sink: ValueSink, item: AvroStep) -> None:
        self.sink, self.item_sink, self.item = sink, sink.children[0], item

    @cython.cfunc
    @cython.exceptval(-1)
    def read(self, cursor: AvroCursor) -> cython.longlong:
        left: cython.longlong
        row: cython.Py_ssize_t = self.sink.append_valid()
        while True:
            if not cursor.read_block():
                return 0
            left = cursor.value
            if left == 0:
                self.sink.integers.view[row + 1] = self.item_sink.count
                return 1
            while left > 0:
                if not self.item.read(cursor):
                    return 0
                left -= 1


@cython.final
@cython.cclass
class ReadMap(AvroStep):
    """Pairs of a text and a value; unsure if a key comes twice."""

    sink: ValueSink
    pair: ValueSink
    keys: ValueSink
    value: AvroStep

    def __init__(self, sink: ValueSink, value: AvroStep) -> None:
        self.sink, self.value = sink, value
        self.pair = sink.children[0]
        self.keys = self.pair.children[0]

    @cython.cfunc
    @cython.exceptval(-1)
    def read(self, cursor: AvroCursor) -> cython.longlong:
        left: cython.longlong
        start: cython.Py_ssize_t
        row: cython.Py_ssize_t = self.sink.append_valid()
        first: cython.Py_ssize_t = self.pair.count
        while True:
            if not cursor.read_block():
                return 0
            left = cursor.value
            if left == 0:
                self.sink.integers.view[row + 1] = self.pair.count
                return self.has_distinct_keys(first)
            while left > 0:
                if not cursor.read_length():
                    return 0
                start = cursor.position
                cursor.position = start + cursor.value
                if not is_utf8(cursor.p, start, cursor.position):
                    return 0
                self.pair.append_valid()
                self.keys.append_bytes(cursor.p, start, cursor.value)
                if not self.value.read(cursor):
                    return 0
                left -= 1

    @cython.cfunc
    @cython.exceptval(-1)
    def has_distinct_keys(self, first: cython.Py_ssize_t) -> cython.longlong:
        """Whether the keys from there on differ."""
        text: BinarySink = self.keys.text
        end: cython.Py_ssize_t = self.keys.count
        one: cython.Py_ssize_t
        other: cython.Py_ssize_t
        if end - first > FEW_MAP_ENTRIES:
            distinct = {bytes(text.data[text.ends.view[one] : text.ends.view[one + 1]]) for one in range(first, end)}
            return len(distinct) == end - first
        for one in range(first + 1, end):
            for other in range(first, one):
                if _is_same(text, one, other):
                    return 0
        return 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_same(text: BinarySink, one: cython.Py_ssize_t, other: cython.Py_ssize_t) -> cython.bint:
    start: cython.Py_ssize_t = text.ends.view[one]
    other_start: cython.Py_ssize_t = text.ends.view[other]
    length: cython.Py_ssize_t = text.ends.view[one + 1] - start
    if text.ends.view[other + 1] - other_start != length:
        return False
    if length == 0:
        return True
    if cython.compiled:
        return memcmp(cython.address(text.data[start]), cython.address(text.data[other_start]), length) == 0
    return text.data[start : start + length] == text.data[other_start : other_start + length]


@cython.final
@cython.cclass
class ReadUnion(AvroStep):
    """The step that belongs to the branch of the writer's union; skips a union too, if its branches do."""

    first: AvroStep | None

    def __init__(self, branches: list[AvroStep]) -> None:
        self.first = chained(branches)

    @cython.cfunc
    @cython.exceptval(-1)
    def read(self, cursor: AvroCursor) -> cython.longlong:
        step: AvroStep | None = self.first
        index: cython.longlong
        if not cursor.read_long() or cursor.value < 0:
            return 0
        index = cursor.value
        while step is not None:
            if index == 0:
                return step.read(cursor)
            step = step.following
            index -= 1
        return 0


@cython.final
@cython.cclass
class AppendDefault(AvroStep):
    """A field that the writer lacks: its default, encoded as the reader would have written it."""

    cursor: AvroCursor
    step: AvroStep

    def __init__(self, datum: bytes, step: AvroStep) -> None:
        self.cursor, self.step = AvroCursor(datum), step

    @cython.cfunc
    @cython.exceptval(-1)
    def read(self, cursor: AvroCursor) -> cython.longlong:
        self.cursor.position = 0
        return self.step.read(self.cursor)


@cython.final
@cython.cclass
class SkipLong(AvroStep):
    """An int, a long or an enum."""

    @cython.cfunc
    @cython.exceptval(-1)
    def read(self, cursor: AvroCursor) -> cython.longlong:
        return cursor.read_long()


@cython.final
@cython.cclass
class SkipFixed(AvroStep):
    """What always has the same size; null has none."""

    size: cython.Py_ssize_t

    def __init__(self, size: int) -> None:
        self.size = size

    @cython.cfunc
    @cython.exceptval(-1)
    def read(self, cursor: AvroCursor) -> cython.longlong:
        if cursor.end - cursor.position < self.size:
            return 0
        cursor.position += self.size
        return 1


@cython.final
@cython.cclass
class SkipBytes(AvroStep):
    @cython.cfunc
    @cython.exceptval(-1)
    def read(self, cursor: AvroCursor) -> cython.longlong:
        if not cursor.read_length():
            return 0
        cursor.position += cursor.value
        return 1


@cython.final
@cython.cclass
class SkipRecord(AvroStep):
    first: AvroStep | None

    def __init__(self, steps: list[AvroStep]) -> None:
        self.first = chained(steps)

    @cython.cfunc
    @cython.exceptval(-1)
    def read(self, cursor: AvroCursor) -> cython.longlong:
        step: AvroStep | None = self.first
        while step is not None:
            if not step.read(cursor):
                return 0
            step = step.following
        return 1


@cython.final
@cython.cclass
class SkipBlocks(AvroStep):
    """An array or a map, item by item; a block whose size in bytes is told must have that size."""

    item: AvroStep

    def __init__(self, item: AvroStep) -> None:
        self.item = item

    @cython.cfunc
    @cython.exceptval(-1)
    def read(self, cursor: AvroCursor) -> cython.longlong:
        left: cython.longlong
        end: cython.Py_ssize_t
        while True:
            end = -1
            if not cursor.read_long():
                return 0
            left = cursor.value
            if left == 0:
                return 1
            if left < 0:
                if not cursor.read_length():
                    return 0
                end = cursor.position + cursor.value
                if left < cursor.position - cursor.end:
                    return 0
                left = -left
            elif left > cursor.end - cursor.position:
                return 0
            while left > 0:
                if not self.item.read(cursor):
                    return 0
                left -= 1
            if end >= 0 and cursor.position != end:
                return 0
