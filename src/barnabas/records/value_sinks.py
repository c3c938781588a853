"""Columns that decoded values fill, laid out as Arrow lays them out; lists, maps and structs have columns below them.

A row is begun and counted at once, so that one which turns out wrong is taken back by `truncate`. The same rules hold
as in `codec`, with which this is compiled.
"""

from __future__ import annotations

from barnabas.records import uncompiled as cython
from barnabas.records.column_codec import BinarySink, IntegerSink, _grown
from barnabas.records.uncompiled import MutableBytes, MutableDoubles, memcpy

# The build puts other imports in place of what stands above (see setup.py).

BOOLEAN = cython.declare(cython.longlong, 0)
INTEGER = cython.declare(cython.longlong, 1)
DOUBLE = cython.declare(cython.longlong, 2)
FLOAT = cython.declare(cython.longlong, 3)
STRING = cython.declare(cython.longlong, 4)
DECIMAL = cython.declare(cython.longlong, 5)
TIMESTAMP = cython.declare(cython.longlong, 6)
DATE = cython.declare(cython.longlong, 7)
STRUCT = cython.declare(cython.longlong, 8)
LIST = cython.declare(cython.longlong, 9)
MAP = cython.declare(cython.longlong, 10)
KINDS = {
    "boolean": BOOLEAN,
    "integer": INTEGER,
    "double": DOUBLE,
    "float": FLOAT,
    "string": STRING,
    "binary": STRING,
    "decimal": DECIMAL,
    "timestamp": TIMESTAMP,
    "date": DATE,
    "struct": STRUCT,
    "list": LIST,
    "map": MAP,
}


@cython.final
@cython.cclass
class ValueSink:
    """One column of a schema, or an element of a list, with the rows that it has so far.

    The integers are the values of a column that is neither text nor bytes, and the ends of a list or map; where the
    values are floating-point, `doubles` is the same memory.
    """

    type_name = cython.declare(str, visibility="readonly")
    name = cython.declare(bytes, visibility="readonly")
    required = cython.declare(cython.bint, visibility="readonly")
    low = cython.declare(cython.longlong, visibility="readonly")
    high = cython.declare(cython.longlong, visibility="readonly")
    scale = cython.declare(cython.longlong, visibility="readonly")
    children = cython.declare(list, visibility="readonly")
    kind: cython.longlong
    name_at: cython.p_const_uchar
    name_length: cython.Py_ssize_t
    zoned: cython.longlong
    count: cython.Py_ssize_t
    room: cython.Py_ssize_t
    validity: bytearray
    bits: MutableBytes
    integers: IntegerSink
    doubles: MutableDoubles
    text: BinarySink

    def __init__(
        self,
        type_name: str,
        name: bytes = b"",
        children: tuple[ValueSink, ...] = (),
        required: bool = False,
        low: int = 0,
        high: int = 0,
        scale: int = 0,
        zoned: int = 0,
    ) -> None:
        """`low` and `high` bound an integer, or the unscaled value of a decimal.

        `zoned` of a timestamp: 1 takes a text with a zone or without (then UTC), 0 only one with, -1 only one without.
        """
        self.type_name, self.kind, self.required, self.children = type_name, KINDS[type_name], required, list(children)
        self.name = self.name_at = name
        self.name_length = len(name)
        self.low, self.high, self.scale, self.zoned = low, high, scale, zoned
        self.count = self.room = 0
        self.validity = self.bits = bytearray()
        self.integers, self.text = IntegerSink(), BinarySink()
        self.doubles = memoryview(self.integers.buffer).cast("d")

    def begin(self) -> None:
        """Forget all rows. The buffers stay, so that the next rows need no new memory."""
        child: ValueSink
        self.count = self.text.size = 0
        for child in self.children:
            child.begin()

    def buffers(self) -> tuple[int, bytearray, bytearray, BinarySink]:
        """Rows, validity, numbers or ends, text."""
        return self.count, self.validity, self.integers.buffer, self.text

    @cython.cfunc
    @cython.exceptval(-1)
    def reserve(self, rows: cython.Py_ssize_t) -> cython.Py_ssize_t:
        if rows > self.room:
            self.validity = self.bits = _grown(self.validity, (max(rows, 2 * self.room) + 7) // 8)
            rows = 8 * len(self.validity)
            if self.kind == STRING:
                self.text.ends.reserve(rows + 1)
            elif self.kind != STRUCT:
                self.integers.reserve(rows + 1)
                if self.kind == DOUBLE or self.kind == FLOAT:
                    self.doubles = memoryview(self.integers.buffer).cast("d")
            self.room = rows
        return self.room

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def append_valid(self) -> cython.Py_ssize_t:
        row: cython.Py_ssize_t = self.count
        if row >= self.room:
            self.reserve(row + 1)
        self.bits[row >> 3] |= 1 << (row & 7)
        self.count = row + 1
        return row

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def append_integer(self, value: cython.longlong) -> cython.longlong:
        row: cython.Py_ssize_t = self.append_valid()
        self.integers.view[row] = value
        return 1

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def append_double(self, value: cython.double) -> cython.longlong:
        row: cython.Py_ssize_t = self.append_valid()
        self.doubles[row] = value
        return 1

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def append_bytes(
        self, p: cython.p_const_uchar, start: cython.Py_ssize_t, length: cython.Py_ssize_t
    ) -> cython.longlong:
        row: cython.Py_ssize_t = self.append_valid()
        text: BinarySink = self.text
        size: cython.Py_ssize_t = text.size
        if size + length > text.room:
            text.reserve_bytes(size + length)
        if length > 0:
            if cython.compiled:
                memcpy(cython.address(text.data[size]), cython.address(p[start]), length)
            else:
                text.data[size : size + length] = p[start : start + length]
        text.size = size + length
        text.ends.view[row + 1] = size + length
        return 1

    @cython.cfunc
    @cython.exceptval(-1)
    def append_null(self) -> cython.Py_ssize_t:
        child: ValueSink
        index: cython.Py_ssize_t
        row: cython.Py_ssize_t = self.count
        if row >= self.room:
            self.reserve(row + 1)
        self.bits[row >> 3] &= ~(1 << (row & 7))
        if self.kind == STRING:
            self.text.ends.view[row + 1] = self.text.size
        elif self.kind == DOUBLE or self.kind == FLOAT:
            self.doubles[row] = 0
        elif self.kind == LIST or self.kind == MAP:
            self.integers.view[row + 1] = self.integers.view[row]
        elif self.kind == STRUCT:
            for index in range(len(self.children)):
                child = self.children[index]
                child.append_null()
        else:
            self.integers.view[row] = 0
        self.count = row + 1
        return row

    @cython.cfunc
    @cython.exceptval(-1)
    def truncate(self, count: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Forget the rows from `count` on, also those that were begun and not counted."""
        child: ValueSink
        index: cython.Py_ssize_t
        kept: cython.Py_ssize_t = count
        self.count = count
        if self.kind == STRING:
            self.text.size = self.text.ends.view[count]
        elif self.kind == LIST or self.kind == MAP:
            kept = self.integers.view[count]
        for index in range(len(self.children)):
            child = self.children[index]
            child.truncate(kept)
        return count
