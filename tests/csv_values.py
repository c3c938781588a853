"""Random CSV values for flat schemas in Spark's language: good, odd and broken.

Everything comes from one `random.Random`, so that a seed repeats a run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from random import Random

from tests.json_values import FRACTIONS, INTEGERS, SIMPLE, TEXTS, TIMES

SEPARATORS = ",;|\t"
ODD_TOKENS = (
    "", " ", '""', '"', '"""', '" "', '"a', 'a"', 'a"b', '"a"b', '"a" ', ' "a"', '"a""b"', '"a\\"b"', "a\\", "\\",
    '\\"', '"\\"', '"\\\\"', '"a\\b"', '"a\nb"', "\n", "a\n", "\na", "\r", "a\r", "\r\n", "\x00", "a\x00", '"\x00"',
    "\ufeff", "\uffff", "a\uffffb", '"a\uffffb"', "#", "#a", "null", "NULL", "NaN", "Inf", "-Inf", "Infinity",
    "-Infinity", "1d", "1f", "0x1p3", "True", "TRUE", "truE", "t", "yes", "fal\u017fe", "1,234.5", '"1,234.5"',
    "\u0661\u0662", " 1", "1 ", " 1.5", "1.5 ", "1_000", "+", "-", "--1", "+-1", "007", "-007", "+7", "0" * 25,
    "1" * 30, "a;b", "a|b", "a,b", "a\tb", '"a;b"', '"a|b"', '"a,b"', '"a\tb"', "2026-11-18 ",
    " 2026-11-18T09:00:00Z", "T09:00:00", "09:00:00", "2026-11-18T09:00:00 Europe/Berlin",
)  # fmt: skip

_ENDLESS_DECIMAL = re.compile(rb"[eE][+-]?\d{5}")
"""Spark writes out all digits of such a decimal before it finds that they are too many, which takes minutes."""


def random_schema(random: Random) -> dict[str, str]:
    return {f"c{index}": random.choice(SIMPLE) for index in range(random.choice((1, 2, 3, 5, 8)))}


def random_value(random: Random, schema: Mapping[str, str], separator: str = ",") -> bytes | None:
    """Mostly tokens that fit their columns."""
    if random.random() < 0.01:
        return None
    oddness = random.choice((0.0, 0.0, 0.0, 0.05, 0.3))
    tokens = [_token(random, kind, oddness) for kind in schema.values()]
    if random.random() < 0.05:
        tokens.append(random.choice(ODD_TOKENS))
    if random.random() < 0.05:
        tokens.pop(random.randrange(len(tokens)))
    text = separator.join(tokens) + random.choice(("", "", "", "", "", "", "\n", "\r\n", separator, " "))
    value = text.encode()
    damaged = _damaged(random, value) if value and random.random() < 0.05 else value
    return value if _ENDLESS_DECIMAL.search(damaged) else damaged


def good_value(random: Random, schema: Mapping[str, str], separator: str = ",") -> bytes:
    """As programs write them: nothing in it is odd."""
    return separator.join(_GOOD[kind](random) for kind in schema.values()).encode()


def _token(random: Random, kind: str, oddness: float) -> str:
    if random.random() < oddness:
        return random.choice((*ODD_TOKENS, *TEXTS, *INTEGERS, *FRACTIONS, *TIMES))
    if random.random() < 0.05:
        return ""
    token = _GOOD[kind](random)
    return f'"{token}"' if random.random() < 0.15 and '"' not in token else token


def _damaged(random: Random, value: bytes) -> bytes:
    at = random.randrange(len(value))
    match random.randrange(4):
        case 0:
            return value[:at]
        case 1:
            return value[:at] + bytes([random.randrange(256)]) + value[at + 1 :]
        case 2:
            return value[:at] + random.choice((b'"', b"\\", b"\n", b",", b"\xff", b"\xed\xa0\x80", b" ")) + value[at:]
        case _:
            return value[at:]


def _integer(bits: int) -> Callable[[Random], str]:
    def integer(random: Random) -> str:
        width = random.randrange(bits)
        sign = random.choice(("", "", "", "-", "-", "+", "0"))
        return f"{sign}{random.randrange(1 << width)}"

    return integer


def _double(random: Random) -> str:
    value = random.choice((random.uniform(-1000, 1000), random.gauss(0, 1) * 10 ** random.randint(-320, 300)))
    return random.choice((repr(value), f"{random.uniform(-100, 100):.2f}", str(random.randint(-999, 999))))


def _float(random: Random) -> str:
    return random.choice((f"{random.uniform(-100, 100):.3f}", f"{random.gauss(0, 1):.8g}", str(random.randint(0, 99))))


def _text(random: Random) -> str:
    letters = "abcdefgh ABC019-_.:/'#+éß中😀\t"
    return "".join(random.choice(letters) for _ in range(random.choice((1, 3, 8, 8, 20, 60))))


def _date(random: Random) -> str:
    return f"{random.randint(1, 9999):04}-{random.randint(1, 12):02}-{random.randint(1, 28):02}"


def _clock(random: Random) -> str:
    fraction = random.choice(("", "", f".{random.randrange(10**6):06}", f".{random.randrange(1000):03}"))
    day = f"20{random.randrange(100):02}-{random.randint(1, 12):02}-{random.randint(1, 28):02}"
    clock = f"{random.randint(0, 23):02}:{random.randint(0, 59):02}:{random.randint(0, 59):02}"
    return f"{day}{random.choice('T ')}{clock}{fraction}"


_GOOD: Mapping[str, Callable[[Random], str]] = {
    "BOOLEAN": lambda random: random.choice(("true", "false", "True", "False", "TRUE")),
    "TINYINT": _integer(7),
    "SMALLINT": _integer(15),
    "INT": _integer(31),
    "BIGINT": _integer(63),
    "FLOAT": _float,
    "DOUBLE": _double,
    "DECIMAL(4,2)": lambda random: random.choice(("7", f"{random.uniform(-99, 99):.2f}", "0.5")),
    "DECIMAL(18,0)": lambda random: str(random.randint(-(10**17), 10**17)),
    "DECIMAL(38,10)": lambda random: f"{random.uniform(-1000, 1000):.{random.randint(0, 10)}f}",
    "STRING": _text,
    "DATE": _date,
    "TIMESTAMP": lambda random: _clock(random) + random.choice(("", "Z", "+01:00", "-09:30")),
    "TIMESTAMP_NTZ": _clock,
}
