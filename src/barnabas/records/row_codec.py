"""The loops over the rows of columns, laid out as Arrow lays them out, that become records.

The columns were checked when their source was made: lengths, order of ends, timestamps. So what follows needs no more
than the number of a row. The same rules hold as in `codec`, with which this is compiled.
"""

from __future__ import annotations

from barnabas.records import uncompiled as cython
from barnabas.records.append_codec import murmur2_between
from barnabas.records.codec import LARGEST, put_varint, varint_size
from barnabas.records.uncompiled import (
    Bytes,
    Int32s,
    Int64s,
    MutableInt32s,
    PyByteArray_FromStringAndSize,
    memcpy,
)

# The build puts other imports in place of what stands above (see setup.py).

ROW_OVERHEAD = cython.declare(cython.longlong, 36)  # the most that a record takes beside key, value and headers
ROW_HEADER_OVERHEAD = cython.declare(cython.longlong, 10)  # the same for a header


@cython.final
@cython.cclass
class BinarySource:
    """A column of byte strings, its bounds checked: row i is data[ends[i]:ends[i + 1]], null where its bit is 0.

    One of `ends` (32 bits) and `wide_ends` (64 bits) is given; where neither is, every row is null. Without bits, none
    is. The bit of row 0 is number `first_bit`, for Arrow shares the bits of a slice with the whole.
    """

    data: Bytes
    ends: Int32s
    wide_ends: Int64s
    bits: Bytes
    first_bit: cython.Py_ssize_t
    absent: cython.bint
    is_wide: cython.bint
    all_valid: cython.bint

    def __init__(
        self, data: Bytes, ends: Int32s, wide_ends: Int64s, bits: Bytes, first_bit: int, rows: cython.Py_ssize_t
    ) -> None:
        row: cython.Py_ssize_t
        self.data, self.ends, self.wide_ends, self.bits, self.first_bit = data, ends, wide_ends, bits, first_bit
        self.is_wide = len(wide_ends) > 0
        self.absent = len(ends) == 0 and not self.is_wide
        self.all_valid = len(bits) == 0
        if self.absent:
            return
        there: cython.Py_ssize_t = (len(wide_ends) if self.is_wide else len(ends)) - 1
        if rows != there or (not self.all_valid and (first_bit < 0 or first_bit + rows > 8 * len(bits))):
            raise ValueError(f"a column of {there} rows does not fit a table of {rows}")
        if self.start(0) < 0 or self.start(rows) > len(data):
            raise ValueError(f"bytes {self.start(0)} to {self.start(rows)} are not within {len(data)}")
        for row in range(rows):
            if self.start(row) > self.start(row + 1):
                raise ValueError(f"row {row} ends before it begins")

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def start(self, row: cython.Py_ssize_t) -> cython.longlong:
        return self.wide_ends[row] if self.is_wide else self.ends[row]

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def length(self, row: cython.Py_ssize_t) -> cython.longlong:
        bit: cython.Py_ssize_t = self.first_bit + row
        if self.absent or not (self.all_valid or self.bits[bit >> 3] >> (bit & 7) & 1):
            return -1
        return self.start(row + 1) - self.start(row)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def sized(self, row: cython.Py_ssize_t) -> cython.longlong:
        """Bytes that a row takes with its length."""
        length: cython.longlong = self.length(row)
        return varint_size(length) + (length if length > 0 else 0)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def put(self, p: cython.p_uchar, position: cython.Py_ssize_t, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        start: cython.Py_ssize_t
        length: cython.longlong = self.length(row)
        position = put_varint(p, position, length)
        if length <= 0:
            return position
        start = self.start(row)
        if cython.compiled:
            memcpy(cython.address(p[position]), cython.address(self.data[start]), length)
        else:
            p[position : position + length] = self.data[start : start + length]
        return position + length

    @cython.cfunc
    @cython.exceptval(check=False)
    def murmur2(self, row: cython.Py_ssize_t) -> cython.ulonglong:
        """The hash of a row that is not null."""
        start: cython.Py_ssize_t = self.start(row)
        end: cython.Py_ssize_t = self.start(row + 1)
        if cython.compiled:
            return murmur2_between(cython.address(self.data[0]), start, end)
        return murmur2_between(bytes(self.data[start:end]), 0, end - start)


@cython.final
@cython.cclass
class RowSource:
    """The columns of one table. Row i has the headers `header_ends[i]` up to `header_ends[i + 1]`; no ends: none."""

    rows: cython.Py_ssize_t
    key: BinarySource
    value: BinarySource
    timestamps: Int64s
    header_ends: Int32s
    header_key: BinarySource
    header_value: BinarySource
    has_headers: cython.bint
    largest_row: cython.Py_ssize_t
    largest_size: cython.longlong

    def __init__(
        self,
        key: BinarySource,
        value: BinarySource,
        timestamps: Int64s,
        header_ends: Int32s,
        header_key: BinarySource,
        header_value: BinarySource,
        header_rows: cython.Py_ssize_t,
    ) -> None:
        row: cython.Py_ssize_t
        size: cython.longlong
        self.rows = len(timestamps)
        self.key, self.value, self.timestamps = key, value, timestamps
        self.header_ends, self.header_key, self.header_value = header_ends, header_key, header_value
        self.has_headers = len(header_ends) > 0
        self.largest_row, self.largest_size = -1, -1
        if self.has_headers and len(header_ends) != self.rows + 1:
            raise ValueError(f"headers of {len(header_ends) - 1} rows do not fit a table of {self.rows}")
        if self.has_headers and (self.header_ends[0] < 0 or self.header_ends[self.rows] > header_rows):
            raise ValueError(f"there are only {header_rows} headers")
        for row in range(self.rows):
            if self.timestamps[row] < -1 or self.timestamps[row] > LARGEST:
                raise ValueError(f"timestamp {self.timestamps[row]} of row {row} is out of range")
            if self.has_headers:
                self.check_headers(row)
            size = ROW_OVERHEAD + self.key.sized(row) + self.value.sized(row) + self.headers_size(row)
            if size > self.largest_size:
                self.largest_row, self.largest_size = row, size

    @cython.cfunc
    @cython.exceptval(-1)
    def check_headers(self, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        header: cython.Py_ssize_t
        if self.header_ends[row] > self.header_ends[row + 1]:
            raise ValueError(f"the headers of row {row} end before they begin")
        for header in range(self.header_ends[row], self.header_ends[row + 1]):
            if self.header_key.length(header) < 0:
                raise ValueError(f"a header of row {row} has no key")
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def headers_size(self, row: cython.Py_ssize_t) -> cython.longlong:
        """Bytes of a row's headers with their number."""
        header: cython.Py_ssize_t
        size: cython.longlong
        if not self.has_headers:
            return 1
        size = varint_size(self.header_ends[row + 1] - self.header_ends[row])
        for header in range(self.header_ends[row], self.header_ends[row + 1]):
            size += self.header_key.sized(header) + self.header_value.sized(header)
        return size

    def largest(self) -> tuple[int, int]:
        """The row that takes the most bytes, and how many at most; -1 where there is none."""
        return self.largest_row, self.largest_size

    def encode(self, order: Int32s, first: int, last: int, limit: int, room: int) -> tuple[bytearray, int, int, int]:
        """After so many bytes of room, the records of the rows `order[first]` up to `order[last]` (of `first` up to
        `last` where the order is empty) as far as `limit` bytes reach.

        With them come where they end in the order, the first timestamp and the greatest.
        """
        row: cython.Py_ssize_t
        header: cython.Py_ssize_t
        size: cython.longlong
        ordered: cython.bint = len(order) > 0
        index: cython.Py_ssize_t = first
        begin: cython.Py_ssize_t = first
        end: cython.Py_ssize_t = last
        position: cython.Py_ssize_t = room
        most: cython.Py_ssize_t = limit
        if not 0 <= first < last <= (len(order) if ordered else self.rows):
            raise ValueError(f"rows {first} to {last} are not within {self.rows}")
        base: cython.longlong = self.timestamps[order[begin] if ordered else begin]
        latest: cython.longlong = base
        target: bytearray = PyByteArray_FromStringAndSize(cython.NULL, limit) if cython.compiled else bytearray(limit)
        p: cython.p_uchar = target
        while index < end:
            row = order[index] if ordered else index
            if row < 0 or row >= self.rows:
                raise ValueError(f"there is no row {row}")
            size = 1 + varint_size(self.timestamps[row] - base) + varint_size(index - begin)
            size += self.key.sized(row) + self.value.sized(row) + self.headers_size(row)
            if position + varint_size(size) + size > most:
                break
            if self.timestamps[row] > latest:
                latest = self.timestamps[row]
            position = put_varint(p, position, size)
            p[position] = 0
            position = put_varint(p, position + 1, self.timestamps[row] - base)
            position = put_varint(p, position, index - begin)
            position = self.key.put(p, position, row)
            position = self.value.put(p, position, row)
            if self.has_headers:
                position = put_varint(p, position, self.header_ends[row + 1] - self.header_ends[row])
                for header in range(self.header_ends[row], self.header_ends[row + 1]):
                    position = self.header_key.put(p, position, header)
                    position = self.header_value.put(p, position, header)
            else:
                p[position] = 0
                position += 1
            index += 1
        del target[position:]
        return target, index, base, latest

    def partition(self, chosen: Int32s, count: int) -> tuple[bytearray, list[int]]:
        """The rows in the order of their partitions, and where in it each of the `count` partitions ends.

        A row goes where `chosen` says if that is not negative, else where its key says. Those without either come last.
        """
        row: cython.Py_ssize_t
        place: cython.Py_ssize_t
        partitions: cython.ulonglong = count
        given: cython.bint = len(chosen) > 0
        if count < 1 or (given and len(chosen) != self.rows):
            raise ValueError(f"{count} partitions, given for {len(chosen)} rows, do not fit a table of {self.rows}")
        places = bytearray(4 * self.rows)
        place_of: MutableInt32s = memoryview(places).cast("i")
        ends = bytearray(4 * (count + 2))
        end_of: MutableInt32s = memoryview(ends).cast("i")
        for row in range(self.rows):
            place = count
            if given and chosen[row] >= 0:
                place = chosen[row]
                if place >= count:
                    raise ValueError(f"row {row} is for partition {place}; there are {count}, counted from 0")
            elif self.key.length(row) >= 0:
                place = (self.key.murmur2(row) & 0x7FFFFFFF) % partitions
            place_of[row] = place
            end_of[place + 1] += 1
        for place in range(count + 1):
            end_of[place + 1] += end_of[place]
        order = bytearray(4 * self.rows)
        order_view: MutableInt32s = memoryview(order).cast("i")
        for row in range(self.rows):
            place = place_of[row]
            order_view[end_of[place]] = row
            end_of[place] += 1  # where the rows of a partition began is by and by where they end
        return order, [end_of[place] for place in range(count)]
