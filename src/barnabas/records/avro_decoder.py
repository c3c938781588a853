"""Reads Avro values, framed or bare, each by the steps that belong to its writer's schema.

A value is *unsure* where it is cut off or too long, does not fit its columns, or is something that is left to a slower
decoder. It leaves no row behind. Every length is checked against the end of the value before it is used. The same rules
hold as in `codec`, with which this is compiled.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.records import uncompiled as cython
from barnabas.records.uncompiled import Bytes, Int64s
from barnabas.records.value_sinks import ValueSink

# The build puts other imports in place of what stands above (see setup.py).

FRAME_BYTES = cython.declare(cython.Py_ssize_t, 5)


@cython.final
@cython.cclass
class AvroCursor:
    """Stands somewhere in a value, which ends at `end`; `value` is the number that was read last."""

    data: Bytes
    p: cython.p_const_uchar
    position: cython.Py_ssize_t
    end: cython.Py_ssize_t
    value: cython.longlong

    def __init__(self, data: Bytes) -> None:
        self.data = data
        self.position = self.value = 0
        self.end = len(data)
        if not cython.compiled:
            self.p = bytes(data)  # indexing bytes is faster than indexing a memoryview
        elif len(data) > 0:
            self.p = cython.address(self.data[0])

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def read_long(self) -> cython.longlong:
        """A zigzag number of at most 64 bits."""
        position: cython.Py_ssize_t = self.position
        raw: cython.ulonglong
        if position >= self.end:
            return 0
        raw = self.p[position]
        if raw < 0x80:
            self.position = position + 1
            self.value = (raw >> 1) ^ -(raw & 1)
            return 1
        return self.read_long_of_several_bytes(raw & 0x7F)

    @cython.cfunc
    @cython.exceptval(check=False)
    def read_long_of_several_bytes(self, raw: cython.ulonglong) -> cython.longlong:
        position: cython.Py_ssize_t = self.position + 1
        byte: cython.ulonglong
        shift: cython.longlong = 7
        while position < self.end and shift <= 63:
            byte = self.p[position]
            position += 1
            if shift == 63 and byte > 1:
                return 0
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.position = position
                self.value = (raw >> 1) ^ -(raw & 1)
                return 1
            shift += 7
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def read_length(self) -> cython.longlong:
        """A length that the value still has bytes for."""
        return self.read_long() and 0 <= self.value <= self.end - self.position

    @cython.cfunc
    @cython.exceptval(check=False)
    def read_block(self) -> cython.longlong:
        """How many items a block has, none if it is the last; its size in bytes, if it has one, is not needed."""
        count: cython.longlong
        if not self.read_long():
            return 0
        if self.value < 0:
            count = self.value
            if not self.read_long():
                return 0
            self.value = -(count + 1)  # cannot overflow
            if self.value >= self.end - self.position:
                return 0
            self.value += 1
            return 1
        return self.value <= self.end - self.position


@cython.cclass
class AvroStep:
    """Reads one datum: returns 1, or 0 where it is unsure, which ends the value at once. This one always returns 0."""

    following: AvroStep | None

    @cython.cfunc
    @cython.exceptval(-1)
    def read(self, cursor: AvroCursor) -> cython.longlong:
        return 0


def chained(steps: list[AvroStep]) -> AvroStep | None:
    """The first of steps that follow each other: what is in a list would be checked for its type each time."""
    step: AvroStep
    first: AvroStep | None = None
    for step in reversed(steps):
        step.following = first
        first = step
    return first


@cython.final
@cython.cclass
class AvroDecoder:
    """Takes values, one at a time, into the columns of a reader's schema.

    A framed value is a zero byte, the number of the writer's schema in four bytes (big-endian), then the datum. `find`
    returns the step that reads a record of that writer, or None where its values are all unsure; None is asked for
    again in the next batch. Without `find`, every value is read by `step`.
    """

    root: ValueSink
    is_framed: cython.bint
    takes_nulls: cython.bint
    step: AvroStep | None
    find: Callable[[int], AvroStep | None] | None
    number: cython.longlong
    known: dict[int, AvroStep]
    unknown: set[int]

    def __init__(
        self,
        root: ValueSink,
        is_framed: bool,
        takes_nulls: bool,
        step: AvroStep | None,
        find: Callable[[int], AvroStep | None] | None,
    ) -> None:
        self.root, self.is_framed, self.takes_nulls, self.step, self.find = root, is_framed, takes_nulls, step, find
        self.number = -1
        self.known = {}
        self.unknown = set()

    def decode(self, data: Bytes, ends: Int64s, validity: Bytes, first_bit: int, rows: int) -> list[int]:
        """Append the rows of the values that are sure; return the indexes of the others.

        Value i is data[ends[i]:ends[i + 1]], and null where bit `first_bit + i` of `validity` is 0; no validity: none
        is null. A null is a row of nulls, or unsure where a column is never null.
        """
        row: cython.Py_ssize_t
        bit: cython.Py_ssize_t
        kept: cython.Py_ssize_t
        has_nulls: cython.bint = len(validity) > 0
        offset: cython.Py_ssize_t = first_bit
        root: ValueSink = self.root
        cursor: AvroCursor = AvroCursor(data)
        unsure: list[int] = []
        self.unknown = set()
        root.reserve(root.count + rows)
        for row in range(rows):
            kept = root.count
            bit = offset + row
            if has_nulls and not (validity[bit >> 3] >> (bit & 7)) & 1:
                if self.takes_nulls:
                    root.append_null()
                else:
                    unsure.append(row)
                continue
            cursor.position, cursor.end = ends[row], ends[row + 1]
            if not self.read_value(cursor):
                root.truncate(kept)
                unsure.append(row)
        return unsure

    @cython.cfunc
    @cython.exceptval(-1)
    def read_value(self, cursor: AvroCursor) -> cython.longlong:
        p: cython.p_const_uchar = cursor.p
        at: cython.Py_ssize_t = cursor.position
        index: cython.Py_ssize_t
        number: cython.longlong
        step: AvroStep | None = self.step
        if self.is_framed:
            if cursor.end - at < FRAME_BYTES or p[at] != 0:
                return 0
            cursor.position = at + FRAME_BYTES
            if self.find is not None:
                number = 0
                for index in range(at + 1, at + FRAME_BYTES):
                    number = number << 8 | p[index]
                if number != self.number:
                    step = self.step = self.step_of(number)
                    self.number = number if step is not None else -1
        if step is None or not step.read(cursor):
            return 0
        return cursor.position == cursor.end

    def step_of(self, number: int) -> AvroStep | None:
        if number in self.unknown:
            return None
        step = self.known.get(number)
        if step is None:
            assert self.find is not None
            step = self.find(number)
            if step is None:
                self.unknown.add(number)
            else:
                self.known[number] = step
        return step
