"""Passes the tokens of a JSON text: blanks, names, texts, numbers, dates, and values that nobody wants.

`csv_codec` reads numbers and times with it too. Where a method finds that what stands here is outside the grammar of
`json_codec`, it returns 0 or what its docstring says, and the position is of no use any more. The same rules hold as in
`codec`, with which this is compiled.
"""

from __future__ import annotations

from barnabas.records import uncompiled as cython
from barnabas.records.uncompiled import Bytes, memcmp
from barnabas.records.utf8 import character_width

# The build puts other imports in place of what stands above (see setup.py).

DEEPEST = cython.declare(cython.longlong, 64)
LONGEST_NAME = cython.declare(cython.longlong, 10_000)
LONGEST_NUMBER = cython.declare(cython.longlong, 100)
LONGEST_TEXT = cython.declare(cython.longlong, 10_000_000)
NO_DAY = cython.declare(cython.longlong, -1_000_000)
NO_TIME = cython.declare(cython.longlong, -(1 << 62))


@cython.final
@cython.cclass
class JsonScanner:
    """Stands somewhere in a text, which ends at `end`."""

    data: Bytes
    p: cython.p_const_uchar
    position: cython.Py_ssize_t
    end: cython.Py_ssize_t
    number_at: cython.Py_ssize_t
    mantissa: cython.ulonglong
    digits: cython.longlong
    fraction: cython.longlong
    is_negative: cython.bint
    is_integer: cython.bint
    has_exponent: cython.bint

    def __init__(self, data: Bytes) -> None:
        self.data = data
        self.position = self.end = 0
        if not cython.compiled:
            self.p = bytes(data)  # indexing bytes is faster than indexing a memoryview
        elif len(data) > 0:
            self.p = cython.address(self.data[0])

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def next(self) -> cython.longlong:
        """The next byte that is no blank, without passing it; 0 at the end."""
        position: cython.Py_ssize_t = self.position
        end: cython.Py_ssize_t = self.end
        byte: cython.longlong
        while position < end:
            byte = self.p[position]
            if byte > 0x20 or not (byte == 0x20 or byte == 0x0A or byte == 0x0D or byte == 0x09):
                self.position = position
                return byte
            position += 1
        self.position = position
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def literal(self, tail: cython.longlong, length: cython.Py_ssize_t) -> cython.longlong:
        """Whether a word of that length with these last four letters stands here; passes it."""
        at: cython.Py_ssize_t = self.position + length - 4
        p: cython.p_const_uchar = self.p
        if at + 4 > self.end:
            return 0
        if (
            p[at] != (tail >> 24) & 0xFF
            or p[at + 1] != (tail >> 16) & 0xFF
            or p[at + 2] != (tail >> 8) & 0xFF
            or p[at + 3] != tail & 0xFF
        ):
            return 0
        self.position = at + 4
        return 1

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def equal(self, name: cython.p_const_uchar, at: cython.Py_ssize_t, length: cython.Py_ssize_t) -> cython.bint:
        if cython.compiled:
            return memcmp(name, cython.address(self.p[at]), length) == 0
        return name == self.p[at : at + length]

    @cython.cfunc
    @cython.exceptval(check=False)
    def name(self) -> cython.longlong:
        """Pass a name without escapes, whose quote stands here; its length, or -1."""
        start: cython.Py_ssize_t = self.position + 1
        position: cython.Py_ssize_t = start
        byte: cython.longlong
        width: cython.longlong
        while position < self.end:
            byte = self.p[position]
            if byte == 0x22:
                self.position = position + 1
                return position - start if position - start <= LONGEST_NAME else -1
            if byte == 0x5C or byte < 0x20:
                return -1
            if byte < 0x80:
                position += 1
            else:
                width = character_width(self.p, position, self.end)
                if width == 0:
                    return -1
                position += width
        return -1

    @cython.cfunc
    @cython.exceptval(check=False)
    def skip(self, byte: cython.longlong, depth: cython.longlong) -> cython.longlong:
        """Pass a value that no column takes; it must be JSON all the same."""
        if byte == 0x22:
            return self.skip_text()
        if byte == 0x6E:
            return self.literal(0x6E756C6C, 4)
        if byte == 0x74:
            return self.literal(0x74727565, 4)
        if byte == 0x66:
            return self.literal(0x616C7365, 5)
        if byte != 0x7B and byte != 0x5B:
            return self.number()
        if depth >= DEEPEST:
            return 0
        closing: cython.longlong = byte + 2
        is_object: cython.bint = byte == 0x7B
        self.position += 1
        byte = self.next()
        if byte == closing:
            self.position += 1
            return 1
        while True:
            if is_object:
                if byte != 0x22 or self.name() < 0 or self.next() != 0x3A:
                    return 0
                self.position += 1
                byte = self.next()
            if not self.skip(byte, depth + 1):
                return 0
            byte = self.next()
            if byte == closing:
                self.position += 1
                return 1
            if byte != 0x2C:
                return 0
            self.position += 1
            byte = self.next()

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def plain_text(self, position: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Where text from here on has its first quote, escape or wrong byte; `end` if it has none."""
        p: cython.p_const_uchar = self.p
        end: cython.Py_ssize_t = self.end
        byte: cython.longlong
        width: cython.longlong
        while position < end:
            byte = p[position]
            if byte == 0x22 or byte == 0x5C or byte < 0x20:
                return position
            if byte < 0x80:
                position += 1
            else:
                width = character_width(self.p, position, self.end)
                if width == 0:
                    return position
                position += width
        return end

    @cython.cfunc
    @cython.exceptval(check=False)
    def skip_text(self) -> cython.longlong:
        start: cython.Py_ssize_t = self.position + 1
        position: cython.Py_ssize_t = self.plain_text(start)
        while position < self.end and position - start <= LONGEST_TEXT:
            if self.p[position] == 0x22:
                self.position = position + 1
                return 1
            if self.p[position] != 0x5C or position + 1 >= self.end:
                return 0
            position += 2
            if self.unescaped(self.p[position - 1]) < 0:
                if self.hexadecimal(position) < 0:
                    return 0
                position += 4
            position = self.plain_text(position)
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def unescaped(self, letter: cython.longlong) -> cython.longlong:
        """What the letter behind a backslash stands for; -1 for u, and -1 for what is none, which has no digits."""
        if letter == 0x22 or letter == 0x5C or letter == 0x2F:
            return letter
        if letter == 0x6E:
            return 0x0A
        if letter == 0x74:
            return 0x09
        if letter == 0x72:
            return 0x0D
        if letter == 0x62:
            return 0x08
        if letter == 0x66:
            return 0x0C
        return -1

    @cython.cfunc
    @cython.exceptval(check=False)
    def hexadecimal(self, at: cython.Py_ssize_t) -> cython.longlong:
        """Four hexadecimal digits that stand behind a u."""
        index: cython.Py_ssize_t
        byte: cython.longlong
        value: cython.longlong = 0
        if at + 4 > self.end or self.p[at - 1] != 0x75:
            return -1
        for index in range(at, at + 4):
            byte = self.p[index]
            if 0x30 <= byte <= 0x39:
                value = value * 16 + byte - 0x30
            elif 0x41 <= byte <= 0x46 or 0x61 <= byte <= 0x66:
                value = value * 16 + (byte & 0xDF) - 0x37
            else:
                return -1
        return value

    @cython.cfunc
    @cython.exceptval(check=False)
    def number(self) -> cython.longlong:
        """Pass a number, and note its sign and its first 18 digits; its value is the mantissa / 10 ** fraction."""
        p: cython.p_const_uchar = self.p
        start: cython.Py_ssize_t = self.position
        position: cython.Py_ssize_t = start
        end: cython.Py_ssize_t = self.end
        begin: cython.Py_ssize_t
        mantissa: cython.ulonglong = 0
        exponent: cython.longlong = 0
        sign: cython.longlong = 1
        if end > start + LONGEST_NUMBER:
            end = start + LONGEST_NUMBER
        self.is_negative = position < end and p[position] == 0x2D
        position += self.is_negative
        if position >= end or p[position] < 0x30 or p[position] > 0x39:
            return 0
        begin = position
        while position < end and 0x30 <= p[position] <= 0x39:
            if position - begin < 18:
                mantissa = mantissa * 10 + (p[position] - 0x30)
            position += 1
        self.digits = position - begin
        if p[begin] == 0x30 and self.digits > 1:
            return 0
        self.is_integer, self.has_exponent = True, False
        self.fraction = 0
        if position < end and p[position] == 0x2E:
            position += 1
            begin = position
            while position < end and 0x30 <= p[position] <= 0x39:
                if self.digits + position - begin < 18:
                    mantissa = mantissa * 10 + (p[position] - 0x30)
                position += 1
            self.fraction = position - begin
            self.digits += self.fraction
            self.is_integer = False
            if self.fraction == 0:
                return 0
        if position < end and (p[position] == 0x65 or p[position] == 0x45):
            position += 1
            if position < end and (p[position] == 0x2D or p[position] == 0x2B):
                if p[position] == 0x2D:
                    sign = -1
                position += 1
            begin = position
            while position < end and 0x30 <= p[position] <= 0x39:
                if exponent < 10_000:
                    exponent = exponent * 10 + (p[position] - 0x30)
                position += 1
            if position == begin:
                return 0
            self.is_integer = False
            self.has_exponent = True
            self.fraction -= sign * exponent
        if position >= end and end != self.end:
            return 0  # too long
        self.number_at = start
        self.mantissa = mantissa
        self.position = position
        return 1

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def two_digits(self, at: cython.Py_ssize_t) -> cython.longlong:
        high: cython.longlong = self.p[at]
        low: cython.longlong = self.p[at + 1]
        if high < 0x30 or high > 0x39 or low < 0x30 or low > 0x39:
            return -10_000
        return (high - 0x30) * 10 + low - 0x30

    @cython.cfunc
    @cython.exceptval(check=False)
    def days(self, at: cython.Py_ssize_t) -> cython.longlong:
        """Since 1970, of a date in ten bytes; the least number for what is none."""
        year: cython.longlong = self.two_digits(at) * 100 + self.two_digits(at + 2)
        month: cython.longlong = self.two_digits(at + 5)
        day: cython.longlong = self.two_digits(at + 8)
        last: cython.longlong = 31
        if year < 1 or self.p[at + 4] != 0x2D or self.p[at + 7] != 0x2D or month < 1 or month > 12:
            return NO_DAY
        if month == 4 or month == 6 or month == 9 or month == 11:
            last = 30
        elif month == 2:
            last = 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
        if day < 1 or day > last:
            return NO_DAY
        if month <= 2:  # a year from March on, so that its leap day is its last
            year -= 1
            month += 12
        return 365 * year + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5 + day - 719_469

    @cython.cfunc
    @cython.exceptval(check=False)
    def date(self) -> cython.longlong:
        """Pass a text that is a date, whose quote stands here; its days since 1970, or NO_DAY."""
        at: cython.Py_ssize_t = self.position + 1
        if at + 11 > self.end or self.p[at + 10] != 0x22:
            return NO_DAY
        self.position = at + 11
        return self.days(at)

    @cython.cfunc
    @cython.exceptval(check=False)
    def timestamp(self, zoned: cython.longlong) -> cython.longlong:
        """Pass a text that is a time, whose quote stands here; its microseconds since 1970, or NO_TIME."""
        time: cython.longlong
        self.position += 1
        time = self.time(zoned)
        if self.position >= self.end or self.p[self.position] != 0x22:
            return NO_TIME
        self.position += 1
        return time

    @cython.cfunc
    @cython.exceptval(check=False)
    def time(self, zoned: cython.longlong) -> cython.longlong:
        """Pass a time that stands here; its microseconds since 1970, or NO_TIME. Something may follow.

        `zoned`: 1 takes a time with a zone or without (then UTC), 0 only one with, -1 only one without.
        """
        p: cython.p_const_uchar = self.p
        at: cython.Py_ssize_t = self.position
        end: cython.Py_ssize_t = self.end
        unit: cython.longlong = 100_000
        micros: cython.longlong = 0
        offset: cython.longlong = 0
        minutes: cython.longlong
        day: cython.longlong
        hour: cython.longlong
        minute: cython.longlong
        second: cython.longlong
        if at + 19 > end or (p[at + 10] != 0x54 and p[at + 10] != 0x20) or p[at + 13] != 0x3A or p[at + 16] != 0x3A:
            return NO_TIME
        day = self.days(at)
        hour, minute, second = self.two_digits(at + 11), self.two_digits(at + 14), self.two_digits(at + 17)
        if day == NO_DAY or hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
            return NO_TIME
        at += 19
        if at < end and p[at] == 0x2E:
            at += 1
            while at < end and 0x30 <= p[at] <= 0x39:
                if unit == 0:
                    return NO_TIME
                micros += (p[at] - 0x30) * unit
                unit //= 10
                at += 1
            if unit == 100_000:
                return NO_TIME
        if zoned >= 0 and at < end and p[at] == 0x5A:
            at += 1
        elif zoned >= 0 and at + 6 <= end and (p[at] == 0x2B or p[at] == 0x2D) and p[at + 3] == 0x3A:
            offset, minutes = self.two_digits(at + 1), self.two_digits(at + 4)
            if offset < 0 or offset > 17 or minutes < 0 or minutes > 59:
                return NO_TIME
            offset = offset * 60 + minutes
            if p[at] == 0x2D:
                offset = -offset
            at += 6
        elif zoned == 0:
            return NO_TIME
        self.position = at
        second += ((day * 24 + hour) * 60 + minute - offset) * 60
        return second * 1_000_000 + micros
