"""Appends the number that a scanner has just passed to a column of numbers, decimals or timestamps.

A number that the column cannot take exactly as Spark would is refused: the value is unsure then. The same rules hold as
in `codec`, with which this is compiled.
"""

from __future__ import annotations

import struct
from array import array

from barnabas.records import uncompiled as cython
from barnabas.records.json_scanner import JsonScanner
from barnabas.records.uncompiled import Doubles, memcpy
from barnabas.records.value_sinks import DECIMAL, DOUBLE, FLOAT, INTEGER, TIMESTAMP, ValueSink

# The build puts other imports in place of what stands above (see setup.py).

EXACT_DOUBLE = cython.declare(cython.ulonglong, 1 << 53)
BELOW_FLOAT = cython.declare(cython.ulonglong, (1 << 29) - 1)  # the bits of a double that a float lacks
MIDWAY = cython.declare(cython.ulonglong, 1 << 28)  # these bits, midway between two floats
MOST_SECONDS = cython.declare(cython.longlong, 9_000_000_000_000)  # whose microseconds fit 64 bits


@cython.final
@cython.cclass
class NumberAppender:
    """A method returns 1 where the number is sure, and 0 where it is not."""

    powers: Doubles

    def __init__(self) -> None:
        self.powers = memoryview(array("d", [float(f"1e{power}") for power in range(23)]))

    @cython.cfunc
    @cython.exceptval(-1)
    def append(self, scan: JsonScanner, column: ValueSink) -> cython.longlong:
        row: cython.Py_ssize_t = column.append_valid()
        if column.kind == DOUBLE:
            return self.put_double(scan, column, row)
        if column.kind == FLOAT:
            return self.put_float(scan, column, row)
        return self.put_integer(scan, column, row)

    @cython.cfunc
    @cython.exceptval(-1)
    def put_double(self, scan: JsonScanner, column: ValueSink, row: cython.Py_ssize_t) -> cython.longlong:
        value: cython.double
        if scan.is_integer and (scan.digits > 18 or (scan.is_negative and scan.mantissa == 0)):
            return 0
        if scan.digits <= 18 and scan.mantissa <= EXACT_DOUBLE and -22 <= scan.fraction <= 22:
            # Both numbers are exact, so that one operation rounds once, as the slow way does.
            value = scan.mantissa
            if scan.fraction > 0:
                value = value / self.powers[scan.fraction]
            elif scan.fraction < 0:
                value = value * self.powers[-scan.fraction]
            if scan.is_negative:
                value = -value
        else:
            value = float(bytes(scan.p[scan.number_at : scan.position]))
            if value - value != 0:
                return 0
        column.doubles[row] = value
        return 1

    @cython.cfunc
    @cython.exceptval(-1)
    def put_float(self, scan: JsonScanner, column: ValueSink, row: cython.Py_ssize_t) -> cython.longlong:
        """A double first. Rounded again, it is the nearest float, unless the first rounding led midway between two."""
        value: cython.double
        bits: cython.ulonglong = 0
        if not self.put_double(scan, column, row):
            return 0
        value = column.doubles[row]
        if value == 0:
            return scan.mantissa == 0
        if not 1.2e-38 <= value <= 3.4e38 and not -3.4e38 <= value <= -1.2e-38:
            return 0
        if cython.compiled:
            memcpy(cython.address(bits), cython.address(value), 8)
        else:
            (bits,) = struct.unpack("<Q", struct.pack("<d", value))
        return bits & BELOW_FLOAT != MIDWAY

    @cython.cfunc
    @cython.exceptval(-1)
    def put_integer(self, scan: JsonScanner, column: ValueSink, row: cython.Py_ssize_t) -> cython.longlong:
        """Of a column of integers, decimals or timestamps."""
        value: cython.longlong = scan.mantissa
        missing: cython.longlong
        if column.kind == DECIMAL:
            missing = column.scale - scan.fraction
            if scan.has_exponent or missing < 0 or scan.digits + missing > 18:
                return 0
            while missing > 0:
                value *= 10
                missing -= 1
        elif not scan.is_integer or scan.digits > 18:
            return self.put_widest(scan, column, row)
        if scan.is_negative:
            value = -value
        if column.kind == TIMESTAMP:
            if column.zoned < 0 or value > MOST_SECONDS or value < -MOST_SECONDS:
                return 0
            value *= 1_000_000
        elif value < column.low or value > column.high:
            return 0
        column.integers.view[row] = value
        return 1

    @cython.cfunc
    @cython.exceptval(-1)
    def put_widest(self, scan: JsonScanner, column: ValueSink, row: cython.Py_ssize_t) -> cython.longlong:
        """An integer of 19 digits, of which the last is not in the mantissa yet."""
        last: cython.longlong
        value: cython.longlong = scan.mantissa
        if not scan.is_integer or scan.digits != 19 or column.kind != INTEGER:
            return 0
        last = scan.p[scan.position - 1] - 0x30
        if value > 922_337_203_685_477_580 or (value == 922_337_203_685_477_580 and last > 7):
            return 0
        value = value * 10 + last
        if scan.is_negative:
            value = -value
        if value < column.low or value > column.high:
            return 0
        column.integers.view[row] = value
        return 1
