"""Columns that JSON values fill, laid out as Arrow lays them out; lists, maps and objects have columns below them.

A row is begun and counted at once, so that one which turns out wrong is taken back by `truncate`. The same rules hold
as in `codec`, with which this is compiled.
"""

from __future__ import annotations

from barnabas.records import uncompiled as cython
from barnabas.records.column_codec import BinarySink, IntegerSink, _grown
from barnabas.records.uncompiled import MutableBytes, MutableDoubles

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
    "decimal": DECIMAL,
    "timestamp": TIMESTAMP,
    "date": DATE,
    "struct": STRUCT,
    "list": LIST,
    "map": MAP,
}


@cython.final
@cython.cclass
class DoubleSink:
    """A column of doubles, with room for the rows that were reserved."""

    buffer: bytearray
    view: MutableDoubles
    room: cython.Py_ssize_t

    def __init__(self) -> None:
        self.buffer = bytearray(8)
        self.view = memoryview(self.buffer).cast("d")
        self.room = 1

    @cython.cfunc
    @cython.exceptval(-1)
    def reserve(self, rows: cython.Py_ssize_t) -> cython.Py_ssize_t:
        if rows > self.room:
            self.buffer = _grown(self.buffer, 8 * rows)
            self.view = memoryview(self.buffer).cast("d")
            self.room = len(self.view)
        return self.room


@cython.final
@cython.cclass
class JsonSink:
    """One column of a schema, or an element of a list, with the rows that it has so far.

    The integers are the values of a column that is neither text nor floating-point, and the ends of a list or map.
    """

    kind: cython.longlong
    name: bytes
    name_at: cython.p_const_uchar
    name_length: cython.Py_ssize_t
    required: cython.bint
    low: cython.longlong
    high: cython.longlong
    scale: cython.longlong
    zoned: cython.longlong
    children: list[JsonSink]
    count: cython.Py_ssize_t
    room: cython.Py_ssize_t
    validity: bytearray
    bits: MutableBytes
    integers: IntegerSink
    doubles: DoubleSink
    text: BinarySink

    def __init__(
        self,
        kind: str,
        name: bytes = b"",
        children: tuple[JsonSink, ...] = (),
        required: bool = False,
        low: int = 0,
        high: int = 0,
        scale: int = 0,
        zoned: int = 0,
    ) -> None:
        """`low` and `high` bound an integer, or the unscaled value of a decimal.

        `zoned` of a timestamp: 1 takes a text with a zone or without (then UTC), 0 only one with, -1 only one without.
        """
        self.kind, self.name, self.children, self.required = KINDS[kind], name, list(children), required
        self.name_length = len(name)
        self.name_at = self.name
        self.low, self.high, self.scale, self.zoned = low, high, scale, zoned
        self.begin()

    def begin(self) -> None:
        """Forget all rows; buffers that were handed out stay as they are."""
        child: JsonSink
        self.count = self.room = 0
        self.validity = self.bits = bytearray()
        self.integers, self.doubles, self.text = IntegerSink(), DoubleSink(), BinarySink()
        for child in self.children:
            child.begin()

    def children_list(self) -> list[JsonSink]:
        return self.children

    def buffers(self) -> tuple[int, bytearray, bytearray, bytearray, BinarySink]:
        """Rows, validity, integers, doubles, text."""
        return self.count, self.validity, self.integers.buffer, self.doubles.buffer, self.text

    @cython.cfunc
    @cython.exceptval(-1)
    def reserve(self, rows: cython.Py_ssize_t) -> cython.Py_ssize_t:
        if rows > self.room:
            self.validity = self.bits = _grown(self.validity, (max(rows, 2 * self.room) + 7) // 8)
            rows = 8 * len(self.validity)
            if self.kind == STRING:
                self.text.ends.reserve(rows + 1)
            elif self.kind == DOUBLE or self.kind == FLOAT:
                self.doubles.reserve(rows)
            elif self.kind == LIST or self.kind == MAP:
                self.integers.reserve(rows + 1)
            elif self.kind != STRUCT:
                self.integers.reserve(rows)
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
    @cython.exceptval(-1)
    def append_null(self) -> cython.Py_ssize_t:
        child: JsonSink
        index: cython.Py_ssize_t
        row: cython.Py_ssize_t = self.count
        if row >= self.room:
            self.reserve(row + 1)
        self.bits[row >> 3] &= ~(1 << (row & 7))
        if self.kind == STRING:
            self.text.ends.view[row + 1] = self.text.size
        elif self.kind == DOUBLE or self.kind == FLOAT:
            self.doubles.view[row] = 0
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
        child: JsonSink
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
