"""Decodes CSV values into columns, laid out as Arrow lays them out.

A value is *sure* when it lies inside a closed grammar in which it can mean one thing only to Spark's `from_csv`; every
other value is *unsure*, and leaves no row behind. Unsure values go to a slower decoder, so this one never has to guess.

    value       one token for each column, divided by the separator
    token       a text without the separator that does not begin with a quote; or a text in quotes, without quotes and
                backslashes in it, right before a separator or the end
    null        a token without text, with quotes or without, but in a column that the schema demands
    boolean     true or false, in letters of either case
    integer     digits behind at most one sign, at most 19, within the width of the column
    double      a JSON number; an integer of at most 18 digits, and not -0
    float       a double within 1.2e-38 and 3.4e38, or 0; not one midway between two floats
    decimal     a JSON number without exponent that needs no rounding, of at most 18 digits
    string      any token
    timestamp   YYYY-MM-DDTHH:MM:SS[.ffffff][Z|+HH:MM] with T or a blank
    date        YYYY-MM-DD

No value is empty, begins with a byte order mark or is longer than 1 MB. All are valid UTF-8 without U+FFFF and without
control characters, but for tabs, line feeds and carriage returns, which are characters like any other. The same rules
hold as in `codec`, with which this is compiled.
"""

from __future__ import annotations

from barnabas.records import uncompiled as cython
from barnabas.records.json_scanner import NO_DAY, NO_TIME, JsonScanner
from barnabas.records.uncompiled import Bytes, Int64s
from barnabas.records.utf8 import character_width
from barnabas.records.value_numbers import NumberAppender
from barnabas.records.value_sinks import BOOLEAN, DATE, INTEGER, STRING, TIMESTAMP, ValueSink

# The build puts other imports in place of what stands above (see setup.py).

LONGEST_LINE = cython.declare(cython.longlong, 1_000_000)  # Spark's parser has more than that in its buffer
MOST_DIGITS = cython.declare(cython.longlong, 19)  # which fit 64 bits without a sign
LARGEST_INTEGER = cython.declare(cython.ulonglong, (1 << 63) - 1)


@cython.final
@cython.cclass
class CsvDecoder:
    """Takes values, one at a time, into the columns of a schema.

    A method that reads returns 1 where the value is sure and 0 where it is not; 0 ends the value at once.
    """

    root: ValueSink
    separator: cython.longlong
    scan: JsonScanner
    numbers: NumberAppender

    def __init__(self, root: ValueSink, separator: int) -> None:
        """`separator` is a byte that is ASCII, and neither a quote, a backslash nor a line feed."""
        self.root, self.separator = root, separator
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
        is_sure: cython.longlong
        has_nulls: cython.bint = len(validity) > 0
        offset: cython.Py_ssize_t = first_bit
        root: ValueSink = self.root
        unsure: list[int] = []
        self.scan = JsonScanner(data)
        root.reserve(root.count + rows)
        for row in range(rows):
            kept = root.count
            bit = offset + row
            root.append_valid()
            if has_nulls and not (validity[bit >> 3] >> (bit & 7)) & 1:
                is_sure = self.append_nulls()
            else:
                is_sure = self.read_line(ends[row], ends[row + 1])
            if not is_sure:
                root.truncate(kept)
                unsure.append(row)
        return unsure

    @cython.cfunc
    @cython.exceptval(-1)
    def append_nulls(self) -> cython.longlong:
        index: cython.Py_ssize_t
        for index in range(len(self.root.children)):
            if not self.read_nothing(self.root.children[index]):
                return 0
        return 1

    @cython.cfunc
    @cython.exceptval(-1)
    def read_line(self, position: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.longlong:
        p: cython.p_const_uchar = self.scan.p
        columns: list[ValueSink] = self.root.children
        last: cython.Py_ssize_t = len(columns) - 1
        index: cython.Py_ssize_t
        token_end: cython.Py_ssize_t
        is_quoted: cython.bint
        if position >= end or end - position > LONGEST_LINE:
            return 0
        if p[position] == 0xEF and end - position >= 3 and p[position + 1] == 0xBB and p[position + 2] == 0xBF:
            return 0
        for index in range(last + 1):
            is_quoted = position < end and p[position] == 0x22
            position += is_quoted
            token_end = self.token_end(position, end, is_quoted)
            if token_end < 0 or not self.read(columns[index], position, token_end):
                return 0
            position = token_end + is_quoted
            if index < last:
                if position >= end or p[position] != self.separator:
                    return 0
                position += 1
        return position == end

    @cython.cfunc
    @cython.exceptval(check=False)
    def token_end(
        self, position: cython.Py_ssize_t, end: cython.Py_ssize_t, is_quoted: cython.bint
    ) -> cython.Py_ssize_t:
        """Where the text of a token ends: at its closing quote, or at a separator or the end; -1 if it is unsure."""
        p: cython.p_const_uchar = self.scan.p
        closing: cython.longlong = 0x22 if is_quoted else self.separator
        byte: cython.longlong
        width: cython.longlong
        while position < end:
            byte = p[position]
            if byte == closing:
                return position
            if byte >= 0x80:
                width = character_width(p, position, end)
                if width == 0 or (byte == 0xEF and p[position + 1] == 0xBF and p[position + 2] == 0xBF):
                    return -1
                position += width
            elif (byte < 0x20 and byte != 0x09 and byte != 0x0A and byte != 0x0D) or (is_quoted and byte == 0x5C):
                return -1
            else:
                position += 1
        return -1 if is_quoted else position

    @cython.cfunc
    @cython.exceptval(-1)
    def read(self, column: ValueSink, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.longlong:
        """The text of a token as the next row of the column."""
        kind: cython.longlong = column.kind
        time: cython.longlong
        if at == end:
            return self.read_nothing(column)
        if kind == STRING:
            return column.append_bytes(self.scan.p, at, end - at)
        if kind == INTEGER:
            return self.read_integer(column, at, end)
        if kind == BOOLEAN:
            return self.read_boolean(column, at, end)
        if kind == DATE:
            time = self.scan.days(at) if end - at == 10 else NO_DAY
            return column.append_integer(time) if time != NO_DAY else 0
        self.scan.position, self.scan.end = at, end
        if kind == TIMESTAMP:
            time = self.scan.time(column.zoned)
            return column.append_integer(time) if time != NO_TIME and self.scan.position == end else 0
        if not self.scan.number() or self.scan.position != end:
            return 0
        return self.numbers.append(self.scan, column)

    @cython.cfunc
    @cython.exceptval(-1)
    def read_nothing(self, column: ValueSink) -> cython.longlong:
        if column.required:
            return 0
        column.append_null()
        return 1

    @cython.cfunc
    @cython.exceptval(-1)
    def read_integer(self, column: ValueSink, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.longlong:
        p: cython.p_const_uchar = self.scan.p
        digits: cython.ulonglong = 0
        value: cython.longlong
        is_negative: cython.bint = p[at] == 0x2D
        at += is_negative or p[at] == 0x2B
        if at == end or end - at > MOST_DIGITS:
            return 0
        while at < end:
            if p[at] < 0x30 or p[at] > 0x39:
                return 0
            digits = digits * 10 + (p[at] - 0x30)
            at += 1
        if digits > LARGEST_INTEGER:
            return 0
        value = digits
        if is_negative:
            value = -value
        return column.append_integer(value) if column.low <= value <= column.high else 0

    @cython.cfunc
    @cython.exceptval(-1)
    def read_boolean(self, column: ValueSink, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.longlong:
        p: cython.p_const_uchar = self.scan.p
        index: cython.Py_ssize_t
        letters: cython.longlong = 0
        if end - at != 4 and end - at != 5:
            return 0
        for index in range(at, end):
            letters = letters << 8 | p[index] | 0x20
        if letters == 0x74727565:
            return column.append_integer(1)
        return column.append_integer(0) if letters == 0x66616C7365 else 0
