"""Numbers as Java reads and writes them: a double's text, and the float that is nearest to a number.

The text is that of Double.toString before Java 19: it is not always the shortest one, so it is made digit by digit.
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction

_SIGNIFICANT_BITS = 53
_HIDDEN_BIT = 1 << 52
_LEAST_NORMAL_EXPONENT = -1022
_FIVES_BITS = [0, *((5**power).bit_length() for power in range(1, 27))]
"""How many bits the powers of five have, as far as they fit 64 bits."""
_MOST_FLOAT = 2**128 - 2**103  # from here on a number is nearer to infinity


def double_text(value: float) -> str:
    """Double.toString."""
    if math.isnan(value):
        return "NaN"
    sign = "-" if math.copysign(1, value) < 0 else ""
    if math.isinf(value):
        return f"{sign}Infinity"
    if value == 0:
        return f"{sign}0.0"
    digits, exponent = _digits(abs(value))
    if 0 < exponent < 8:
        whole, fraction = digits[:exponent].ljust(exponent, "0"), digits[exponent:]
        return f"{sign}{whole}.{fraction or '0'}"
    if -3 < exponent <= 0:
        return f"{sign}0.{'0' * -exponent}{digits}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent - 1}"


def nearest_float(text: str) -> float:
    """The 32-bit float that is nearest to a decimal number, which is rounded once."""
    value = float(text)
    if not math.isfinite(value) or value == 0:
        return value
    exact = Fraction(text)
    if abs(exact) >= _MOST_FLOAT:
        return math.copysign(math.inf, value)
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    if abs(Fraction(rounded) - Fraction(value)) * 2 != _ulp(value) or Fraction(value) == exact:
        return rounded
    # The double lies halfway between two floats, and the number to one side of it.
    other = 2 * value - rounded
    return rounded if abs(exact - Fraction(rounded)) < abs(exact - Fraction(other)) else other


def _ulp(value: float) -> Fraction:
    """The distance of the floats around a number."""
    exponent = max(math.frexp(value)[1] - 1, -126)
    return Fraction(2) ** (exponent - 23)


def _digits(value: float) -> tuple[str, int]:
    """Decimal digits, and how many of them stand before the point."""
    bits = struct.unpack("<q", struct.pack("<d", value))[0]
    fraction, exponent = bits & (_HIDDEN_BIT - 1), bits >> 52
    significant_bits = _SIGNIFICANT_BITS
    if exponent == 0:
        significant_bits = fraction.bit_length()
        fraction <<= _SIGNIFICANT_BITS - significant_bits
        exponent = _LEAST_NORMAL_EXPONENT - (_SIGNIFICANT_BITS - significant_bits)
    else:
        fraction |= _HIDDEN_BIT
        exponent -= 1023
    trailing_zeros = (fraction & -fraction).bit_length() - 1
    fraction_bits = _SIGNIFICANT_BITS - trailing_zeros
    tiny_bits = max(0, fraction_bits - exponent - 1)
    if -21 <= exponent <= 62 and tiny_bits == 0:
        whole = fraction << exponent - 52 if exponent >= 52 else fraction >> 52 - exponent
        return _whole_digits(whole, exponent - significant_bits - 1)
    return _generated(fraction, exponent, significant_bits, trailing_zeros, fraction_bits, tiny_bits)


def _whole_digits(whole: int, doubtful_bits: int) -> tuple[str, int]:
    """Of an integer, of which the lowest bits may stand for nothing."""
    left_out = len(str(1 << doubtful_bits)) - 1 if doubtful_bits > 1 else 0
    if left_out:
        whole, residue = divmod(whole, 10**left_out)
        whole += residue >= 10**left_out // 2
    text = str(whole)
    return text.rstrip("0"), len(text) + left_out


def _generated(
    fraction: int, exponent: int, significant_bits: int, trailing_zeros: int, fraction_bits: int, tiny_bits: int
) -> tuple[str, int]:
    """Digits of a quotient until the next ones make no difference; some doubles get one digit too many."""
    leading = struct.unpack("<d", struct.pack("<q", 1023 << 52 | fraction & (_HIDDEN_BIT - 1)))[0]
    decimal = math.floor((leading - 1.5) * 0.289529654 + 0.176091259 + exponent * 0.301029995663981)
    dividend_5, divisor_5 = max(0, -decimal), max(0, decimal)
    dividend_2, divisor_2 = dividend_5 + tiny_bits + exponent, divisor_5 + tiny_bits
    margin_2 = dividend_2 - significant_bits
    fraction >>= trailing_zeros
    dividend_2 -= fraction_bits - 1
    common = min(dividend_2, divisor_2)
    dividend_2, divisor_2, margin_2 = dividend_2 - common, divisor_2 - common, margin_2 - common
    if fraction_bits == 1:
        margin_2 -= 1  # the double below a power of two is half as far away
    if margin_2 < 0:
        dividend_2, divisor_2, margin_2 = dividend_2 - margin_2, divisor_2 - margin_2, 0
    width = max(fraction_bits + dividend_2 + _bits_of_fives(dividend_5), divisor_2 + 1 + _bits_of_fives(divisor_5 + 1))
    width = 32 if width < 32 else 64 if width < 64 else 0
    dividend = fraction * 5**dividend_5 << dividend_2
    divisor = 5**divisor_5 << divisor_2
    margin = 5**dividend_5 << margin_2
    tens = divisor * 10

    def ends() -> tuple[bool, bool]:
        if not width:
            return dividend < margin, dividend + margin >= tens
        return (dividend < margin, dividend + margin > tens) if margin > 0 else (True, True)

    def wrapped(number: int) -> int:
        half = 1 << width - 1 if width else 0
        return (number + half) % (2 * half) - half if width else number

    digit, dividend = dividend // divisor, 10 * (dividend % divisor)
    margin = wrapped(margin * 10)
    is_low, is_high = dividend < margin, dividend + margin > tens if width else dividend + margin >= tens
    digits = []
    if digit == 0 and not is_high:
        decimal -= 1
    else:
        digits.append(digit)
    if decimal < -3 or decimal >= 8:
        is_low = is_high = False
    while not is_low and not is_high:
        digit, dividend = dividend // divisor, 10 * (dividend % divisor)
        margin = wrapped(margin * 10)
        is_low, is_high = ends()
        digits.append(digit)
    number = int("".join(map(str, digits)))
    if is_high and (not is_low or 2 * dividend > tens or (2 * dividend == tens and digits[-1] % 2)):
        number += 1
    text = str(number)
    if len(text) > len(digits):  # all were nines
        return text[:-1], decimal + 2
    return text, decimal + 1


def _bits_of_fives(power: int) -> int:
    return _FIVES_BITS[power] if power < len(_FIVES_BITS) else power * 3
