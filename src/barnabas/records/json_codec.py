"""Decodes JSON values into columns, laid out as Arrow lays them out.

A value is *sure* when it lies inside a closed grammar in which it can mean one thing only; every other value is
*unsure*, and leaves no row behind. The grammar is narrower than JSON on purpose: unsure values go to a slower decoder,
so this one never has to guess what that would do.

    value       one object, with blanks around it; null where it is to be a row of nulls
    object      names without escapes; a name of the schema at most once; other names with any JSON value
    boolean     true or false
    integer     digits without fraction and exponent, within the width of the column
    double      a JSON number; an integer of at most 18 digits, and not -0
    float       a double within 1.2e-38 and 3.4e38, or 0; not one midway between two floats
    decimal     a number without exponent that needs no rounding, of at most 18 digits
    string      a JSON string of valid UTF-8, without unpaired surrogates
    timestamp   "YYYY-MM-DDTHH:MM:SS[.ffffff][Z|+HH:MM]" with T or a blank, or whole seconds since 1970 as a number
    date        "YYYY-MM-DD"
    list, map   of the above; the names of a map are strings, and differ
    null        everywhere but in a column that the schema demands

Nothing is deeper than 64 levels, no name is longer than 10,000 bytes, no number longer than 100, no text longer than
10 MB. The same rules hold as in `codec`, with which this is compiled.
"""

from __future__ import annotations

from barnabas.records import uncompiled as cython
from barnabas.records.column_codec import BinarySink
from barnabas.records.json_scanner import DEEPEST, LONGEST_TEXT, NO_DAY, NO_TIME, JsonScanner
from barnabas.records.uncompiled import Bytes, Int64s, memcmp, memcpy
from barnabas.records.value_numbers import NumberAppender
from barnabas.records.value_sinks import BOOLEAN, DATE, LIST, MAP, STRING, STRUCT, TIMESTAMP, ValueSink

# The build puts other imports in place of what stands above (see setup.py).

MOST_MAP_ENTRIES = cython.declare(cython.longlong, 64)  # each name is compared with all before it


@cython.final
@cython.cclass
class JsonDecoder:
    """Takes values, one at a time, into the columns of a schema.

    A method that reads returns 1 where the value is sure and 0 where it is not; 0 ends the value at once.
    """

    root: ValueSink
    scan: JsonScanner
    numbers: NumberAppender

    def __init__(self, root: ValueSink) -> None:
        self.root = root
        self.scan = JsonScanner(b"")
        self.numbers = NumberAppender()

    def decode(self, data: Bytes, ends: Int64s, validity: Bytes, first_bit: int, rows: int) -> list[int]:
        """Append the rows of the values that are sure; return the indexes of the others.

        Value i is data[ends[i]:ends[i + 1]], and null where bit `first_bit + i` of `validity` is 0; no validity: none
        is null.
        """
        row: cython.Py_ssize_t
        bit: cython.Py_ssize_t
        kept: cython.Py_ssize_t
        has_nulls: cython.bint = len(validity) > 0
        offset: cython.Py_ssize_t = first_bit
        root: ValueSink = self.root
        unsure: list[int] = []
        self.scan = JsonScanner(data)
        root.reserve(root.count + rows)
        for row in range(rows):
            kept = root.count
            bit = offset + row
            if has_nulls and not (validity[bit >> 3] >> (bit & 7)) & 1:
                root.append_valid()
                if not self.finish_struct(root, kept):
                    root.truncate(kept)
                    unsure.append(row)
                continue
            self.scan.position, self.scan.end = ends[row], ends[row + 1]
            if not self.whole_value():
                root.truncate(kept)
                unsure.append(row)
        return unsure

    @cython.cfunc
    @cython.exceptval(-1)
    def whole_value(self) -> cython.longlong:
        if self.scan.next() != 0x7B or not self.read_struct(self.root, 1):
            return 0
        self.scan.next()
        return self.scan.position == self.scan.end

    @cython.cfunc
    @cython.exceptval(-1)
    def read(self, column: ValueSink, byte: cython.longlong, depth: cython.longlong) -> cython.longlong:
        """A value that begins with `byte`, as the next row of the column."""
        kind: cython.longlong = column.kind
        time: cython.longlong
        if byte == 0x6E:  # null
            if not self.scan.literal(0x6E756C6C, 4):
                return 0
            column.append_null()
            return 1
        if kind == STRING:
            return self.read_text(column) if byte == 0x22 else 0
        if kind == STRUCT:
            return self.read_struct(column, depth) if byte == 0x7B and depth < DEEPEST else 0
        if kind == LIST:
            return self.read_list(column, depth) if byte == 0x5B and depth < DEEPEST else 0
        if kind == MAP:
            return self.read_map(column, depth) if byte == 0x7B and depth < DEEPEST else 0
        if kind == BOOLEAN:
            if byte == 0x74 and self.scan.literal(0x74727565, 4):
                return column.append_integer(1)
            if byte == 0x66 and self.scan.literal(0x616C7365, 5):
                return column.append_integer(0)
            return 0
        if byte == 0x22:
            if kind == TIMESTAMP:
                time = self.scan.timestamp(column.zoned)
                return column.append_integer(time) if time != NO_TIME else 0
            if kind == DATE:
                time = self.scan.date()
                return column.append_integer(time) if time != NO_DAY else 0
            return 0
        if kind == DATE or not self.scan.number():
            return 0
        return self.numbers.append(self.scan, column)

    @cython.cfunc
    @cython.exceptval(-1)
    def read_struct(self, column: ValueSink, depth: cython.longlong) -> cython.longlong:
        row: cython.Py_ssize_t = column.append_valid()
        at: cython.Py_ssize_t
        left: cython.Py_ssize_t
        expected: cython.Py_ssize_t = 0
        count: cython.Py_ssize_t = len(column.children)
        byte: cython.longlong
        length: cython.longlong
        child: ValueSink
        children: list[ValueSink] = column.children
        self.scan.position += 1
        byte = self.scan.next()
        if byte == 0x7D:
            self.scan.position += 1
            return self.finish_struct(column, row)
        while True:
            if byte != 0x22:
                return 0
            at = self.scan.position + 1
            length = self.scan.name()
            if length < 0 or self.scan.next() != 0x3A:
                return 0
            self.scan.position += 1
            byte = self.scan.next()
            left = count
            while left > 0:  # names mostly come in the order of the schema
                if expected >= count:
                    expected = 0
                child = children[expected]
                expected += 1
                if child.name_length == length and self.scan.equal(child.name_at, at, length):
                    if child.count != row or not self.read(child, byte, depth + 1):
                        return 0
                    break
                left -= 1
            if left == 0 and not self.scan.skip(byte, depth + 1):
                return 0
            byte = self.scan.next()
            if byte == 0x7D:
                self.scan.position += 1
                return self.finish_struct(column, row)
            if byte != 0x2C:
                return 0
            self.scan.position += 1
            byte = self.scan.next()

    @cython.cfunc
    @cython.exceptval(-1)
    def finish_struct(self, column: ValueSink, row: cython.Py_ssize_t) -> cython.longlong:
        """Null for what the object does not have; 0 if a column that is required has no value."""
        index: cython.Py_ssize_t
        child: ValueSink
        for index in range(len(column.children)):
            child = column.children[index]
            if child.count == row:
                child.append_null()
            if child.required and not (child.bits[row >> 3] >> (row & 7)) & 1:
                return 0
        return 1

    @cython.cfunc
    @cython.exceptval(-1)
    def read_list(self, column: ValueSink, depth: cython.longlong) -> cython.longlong:
        row: cython.Py_ssize_t = column.append_valid()
        element: ValueSink = column.children[0]
        byte: cython.longlong
        self.scan.position += 1
        byte = self.scan.next()
        if byte != 0x5D:
            while True:
                if not self.read(element, byte, depth + 1):
                    return 0
                byte = self.scan.next()
                if byte == 0x5D:
                    break
                if byte != 0x2C:
                    return 0
                self.scan.position += 1
                byte = self.scan.next()
        self.scan.position += 1
        column.integers.view[row + 1] = element.count
        return 1

    @cython.cfunc
    @cython.exceptval(-1)
    def read_map(self, column: ValueSink, depth: cython.longlong) -> cython.longlong:
        row: cython.Py_ssize_t = column.append_valid()
        pair: ValueSink = column.children[0]
        key: ValueSink = pair.children[0]
        value: ValueSink = pair.children[1]
        first: cython.Py_ssize_t = pair.count
        at: cython.Py_ssize_t
        before: cython.Py_ssize_t
        length: cython.longlong
        byte: cython.longlong
        self.scan.position += 1
        byte = self.scan.next()
        if byte != 0x7D:
            while True:
                if byte != 0x22:
                    return 0
                at = self.scan.position + 1
                length = self.scan.name()
                if length < 0 or self.scan.next() != 0x3A or pair.count - first >= MOST_MAP_ENTRIES:
                    return 0
                for before in range(first, pair.count):
                    if key.text.ends.view[before + 1] - key.text.ends.view[before] == length and self.is_same(
                        key.text, key.text.ends.view[before], at, length
                    ):
                        return 0
                pair.append_valid()
                key.append_bytes(self.scan.p, at, length)
                self.scan.position += 1
                if not self.read(value, self.scan.next(), depth + 1):
                    return 0
                byte = self.scan.next()
                if byte == 0x7D:
                    break
                if byte != 0x2C:
                    return 0
                self.scan.position += 1
                byte = self.scan.next()
        self.scan.position += 1
        column.integers.view[row + 1] = pair.count
        return 1

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def is_same(
        self, text: BinarySink, start: cython.Py_ssize_t, at: cython.Py_ssize_t, length: cython.Py_ssize_t
    ) -> cython.bint:
        if length == 0:
            return True
        if cython.compiled:
            return memcmp(cython.address(text.data[start]), cython.address(self.scan.p[at]), length) == 0
        return bytes(text.data[start : start + length]) == self.scan.p[at : at + length]

    @cython.cfunc
    @cython.exceptval(-1)
    def read_text(self, column: ValueSink) -> cython.longlong:
        start: cython.Py_ssize_t = self.scan.position + 1
        position: cython.Py_ssize_t = self.scan.plain_text(start)
        row: cython.Py_ssize_t
        if position >= self.scan.end or position - start > LONGEST_TEXT:
            return 0
        if self.scan.p[position] == 0x22:
            self.scan.position = position + 1
            return column.append_bytes(self.scan.p, start, position - start)
        row = column.append_valid()
        return self.read_escaped(column, row, start, position)

    @cython.cfunc
    @cython.exceptval(-1)
    def read_escaped(
        self, column: ValueSink, row: cython.Py_ssize_t, start: cython.Py_ssize_t, position: cython.Py_ssize_t
    ) -> cython.longlong:
        """A text with escapes, of which the bytes from `start` to `position` have none."""
        text: BinarySink = column.text
        size: cython.Py_ssize_t = text.size
        length: cython.Py_ssize_t
        letter: cython.longlong
        low: cython.longlong
        while True:
            length = position - start
            if text.room < size + length + 4:
                text.size = size
                text.reserve_bytes(size + length + 4)
            if cython.compiled:
                memcpy(cython.address(text.data[size]), cython.address(self.scan.p[start]), length)
            else:
                text.data[size : size + length] = self.scan.p[start:position]
            size += length
            if position >= self.scan.end or size - text.size > LONGEST_TEXT:
                return 0
            if self.scan.p[position] == 0x22:
                break
            if self.scan.p[position] != 0x5C or position + 1 >= self.scan.end:
                return 0
            letter = self.scan.unescaped(self.scan.p[position + 1])
            position += 2
            if letter < 0:
                letter = self.scan.hexadecimal(position)
                position += 4
                if letter < 0 or 0xDC00 <= letter <= 0xDFFF:
                    return 0
                if letter >= 0xD800:
                    if (
                        position + 2 > self.scan.end
                        or self.scan.p[position] != 0x5C
                        or self.scan.p[position + 1] != 0x75
                    ):
                        return 0
                    low = self.scan.hexadecimal(position + 2)
                    position += 6
                    if low < 0xDC00 or low > 0xDFFF:
                        return 0
                    letter = 0x10000 + ((letter - 0xD800) << 10) + (low - 0xDC00)
            if letter < 0x80:
                text.data[size] = letter
                size += 1
            elif letter < 0x800:
                text.data[size] = 0xC0 | letter >> 6
                text.data[size + 1] = 0x80 | letter & 0x3F
                size += 2
            elif letter < 0x10000:
                text.data[size] = 0xE0 | letter >> 12
                text.data[size + 1] = 0x80 | letter >> 6 & 0x3F
                text.data[size + 2] = 0x80 | letter & 0x3F
                size += 3
            else:
                text.data[size] = 0xF0 | letter >> 18
                text.data[size + 1] = 0x80 | letter >> 12 & 0x3F
                text.data[size + 2] = 0x80 | letter >> 6 & 0x3F
                text.data[size + 3] = 0x80 | letter & 0x3F
                size += 4
            start = position
            position = self.scan.plain_text(position)
        text.size = size
        text.ends.view[row + 1] = size
        self.scan.position = position + 1
        return 1
