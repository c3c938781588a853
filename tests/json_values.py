"""Random schemas in Spark's language, and JSON values for them: good, odd and broken.

Everything comes from one `random.Random`, so that a seed repeats a run.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from random import Random
from typing import TypeAlias

import pyarrow

Kind: TypeAlias = str | tuple[str, ...] | dict[str, "Kind"]
"""A simple type; ("array", element); ("map", value); or the fields of a struct."""

SIMPLE = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "DATE", "TIMESTAMP",
    "TIMESTAMP_NTZ", "DECIMAL(4,2)", "DECIMAL(18,0)", "DECIMAL(38,10)",
)  # fmt: skip
TEXTS = (
    "",
    "a",
    "user-17",
    "naïve",
    "日本語",
    "😀",
    "a\nb",
    'quo"te',
    "back\\slash",
    "\u0000",
    "null",
    "1",
    "tab\t",
    "é" * 40,
)
RAW_TEXTS = (
    r'"\u00e9"', r'"\ud83d\ude00"', r'"\ud83d"', r'"\ude00x"', r'"\q"', r'"\u12"', '"a\nb"', '"a\x01"', "'a'", '"open',
    r'"\/"', r'"\b\f\n\r\t"', r'"\uD83D\u0041"',
)  # fmt: skip
INTEGERS = (
    "0", "-0", "1", "-1", "7", "127", "128", "-128", "-129", "255", "256", "32767", "32768", "2147483647",
    "2147483648", "-2147483648", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "123456789012345678", "1234567890123456789", "99999999999999999999999", "01", "+1", "16777217", "1700000000",
    "1700000000000", "9007199254740993",
)  # fmt: skip
FRACTIONS = (
    "0.1", "-0.0", "1.0", "1e5", "1E-5", "1e0", "1.50", "12.345", "12.344", "99.99", "99.995", "3.4028236e38", "1e400",
    "1e-400", "4.9e-324", "1.7976931348623157e308", "0.30000000000000004", "123456789.123456789123456789", "1.", ".5",
    "1e", "5e-324", "2.2250738585072011e-308", "0.1e1", "1.23e2", "16777217.0", "0.00000000000000000000001", "1e23",
    "8.41e21", "9007199254740993.0",
)  # fmt: skip
TIMES = (
    "2026-11-18T09:00:00Z", "2026-11-18 09:00:00", "2026-11-18T09:00:00.123456+05:30", "2026-11-18T09:00:00.1Z",
    "2026-11-18T09:00:00.123456789Z", "2026-11-18", "2026-11-18T09:00", "2026-11-18T24:00:00Z", "2026-02-29T00:00:00Z",
    "2024-02-29T23:59:59.999999-11:00", "1969-12-31T23:59:59.999999Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z",
    "1582-10-10T00:00:00Z", "2026-11-18T09:00:60Z", "2026-11-18T9:00:00Z", "2026-11-18T09:00:00 UTC", "soon", "",
    "2026-11-18T09:00:00+18:00", "2026-11-18T09:00:00+0530", "2026-11-18T09:00:00.Z", "0000-01-01T00:00:00Z",
    "2026-11-18T09:00:00z", "2026-11-18T09:00:00+00:00", "2026-11-18T09:00:00+17:59", "1900-02-29T00:00:00",
    "02026-1-1", "2026-13-01", "2026-11-31", "1970-01-01", "0001-01-01", "9999-12-31", "1582-10-10", "2026-1-1",
    " 2026-11-18",
)  # fmt: skip
ODD = (
    "null",
    "true",
    "false",
    "[]",
    "{}",
    '""',
    '"x"',
    "[1]",
    '{"a":1}',
    "nul",
    "True",
    "NaN",
    '"NaN"',
    '"Infinity"',
    "[null]",
)
JUNK = (" junk", "}", ",", "]", "\x00", "{}", ',{"a":1}', "\n", " \t\r\n", "//c", "\ufeff", "null")


def random_schema(random: Random) -> dict[str, Kind]:
    return {f"c{index}": _kind(random, 0) for index in range(random.randint(1, 6))}


def ddl(fields: Mapping[str, Kind], required: frozenset[str] = frozenset()) -> str:
    return ", ".join(f"{name} {_ddl(kind)}{' NOT NULL' if name in required else ''}" for name, kind in fields.items())


def arrow_type(kind: Kind) -> pyarrow.DataType:
    if isinstance(kind, dict):
        return pyarrow.struct([(name, arrow_type(each)) for name, each in kind.items()])
    if isinstance(kind, tuple):
        inner = arrow_type(kind[1])
        return pyarrow.list_(inner) if kind[0] == "array" else pyarrow.map_(pyarrow.string(), inner)
    if kind.startswith("DECIMAL"):
        return pyarrow.decimal128(*(int(each) for each in kind[8:-1].split(",")))
    return _ARROW[kind]


def random_value(random: Random, fields: Mapping[str, Kind]) -> bytes | None:
    """Mostly good; one in ten is broken as a whole."""
    if random.random() < 0.02:
        return None
    text = _object(random, fields, _named(random, fields))
    if random.random() < 0.9:
        return text.encode(errors="surrogatepass")
    data = text.encode(errors="surrogatepass")
    match random.randrange(6):
        case 0:
            return data[: random.randint(0, len(data))]
        case 1:
            return data + random.choice(JUNK).encode()
        case 2:
            return random.choice(JUNK).encode() + data
        case 3:
            at = random.randint(0, len(data))
            return data[:at] + bytes([random.randrange(256)]) + data[at + random.randint(0, 1) :]
        case 4:
            return random.choice((b"", b"null", b"[]", b"1", b'"a"', b"{}", b" ", b"\xff", b"[" + data + b"]"))
        case _:
            at = random.randint(0, len(data))
            return (
                data[:at]
                + random.choice((b"\xc3\xa9", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe0\x80\x80"))
                + data[at:]
            )


def _kind(random: Random, depth: int) -> Kind:
    if depth < 3 and random.random() < 0.3:
        match random.randrange(3):
            case 0:
                return ("array", _kind(random, depth + 1))  # type: ignore[return-value]
            case 1:
                return ("map", _kind(random, depth + 1))  # type: ignore[return-value]
            case _:
                return {f"f{index}": _kind(random, depth + 1) for index in range(random.randint(1, 3))}
    return random.choice(SIMPLE)


def _ddl(kind: Kind) -> str:
    if isinstance(kind, str):
        return kind
    if isinstance(kind, dict):
        return f"STRUCT<{', '.join(f'{name}: {_ddl(each)}' for name, each in kind.items())}>"
    inner = _ddl(kind[1])
    return f"ARRAY<{inner}>" if kind[0] == "array" else f"MAP<STRING, {inner}>"


def _blank(random: Random) -> str:
    return random.choice(("", "", "", " ", "\n ", "\t"))


def _named(random: Random, fields: Mapping[str, Kind]) -> list[str]:
    names = [name for name in fields if random.random() < 0.9]
    if random.random() < 0.2:
        random.shuffle(names)
    if random.random() < 0.05 and names:
        names.append(random.choice(names))
    if random.random() < 0.2:
        names.insert(random.randint(0, len(names)), random.choice(("other", "", "C0", "é")))
    return names


def _object(random: Random, fields: Mapping[str, Kind], names: list[str]) -> str:
    parts = []
    for name in names:
        value = _value(random, fields[name]) if name in fields else _anything(random, 0)
        quoted = json.dumps(name, ensure_ascii=random.random() < 0.5)
        parts.append(f"{_blank(random)}{quoted}{_blank(random)}:{_blank(random)}{value}{_blank(random)}")
    return f"{_blank(random)}{{{','.join(parts)}}}{_blank(random)}"


def _value(random: Random, kind: Kind) -> str:
    if random.random() < 0.06:
        return "null"
    if random.random() < 0.04:
        return _anything(random, 0)
    if isinstance(kind, dict):
        return _object(random, kind, _named(random, kind))
    if isinstance(kind, tuple):
        values = [_value(random, kind[1]) for _ in range(random.choice((0, 1, 1, 2, 5)))]
        if kind[0] == "array":
            return f"[{','.join(f'{_blank(random)}{value}{_blank(random)}' for value in values)}]"
        keys = [random.choice(TEXTS) if random.random() < 0.3 else f"k{index}" for index in range(len(values))]
        return f"{{{','.join(f'{json.dumps(key, ensure_ascii=False)}:{value}' for key, value in zip(keys, values))}}}"
    return _SIMPLE[kind.partition("(")[0]](random)


def _anything(random: Random, depth: int) -> str:
    if depth < 4 and random.random() < 0.3:
        inner = [_anything(random, depth + 1) for _ in range(random.randrange(3))]
        if random.random() < 0.5:
            return f"[{', '.join(inner)}]"
        return f"{{{', '.join(f'{json.dumps(str(index))}: {value}' for index, value in enumerate(inner))}}}"
    return random.choice((*ODD, *INTEGERS, *FRACTIONS, *RAW_TEXTS, *(json.dumps(text) for text in (*TEXTS, *TIMES))))


def _integer(random: Random) -> str:
    if random.random() < 0.7:
        return str(random.randint(-(10 ** random.randint(1, 19)), 10 ** random.randint(1, 19)))
    return random.choice((*INTEGERS, *FRACTIONS))


def _number(random: Random) -> str:
    match random.randrange(5):
        case 0:
            return repr(random.uniform(-1000, 1000))
        case 1:
            return f"{random.uniform(-100, 100):.2f}"
        case 2:
            return f"{random.randint(-(10**17), 10**17)}e{random.randint(-330, 310)}"
        case 3:
            return _integer(random)
        case _:
            return random.choice((*INTEGERS, *FRACTIONS))


def _text(random: Random) -> str:
    if random.random() < 0.1:
        return random.choice(RAW_TEXTS)
    text = random.choice(TEXTS) + "".join(
        chr(random.choice((97, 0xE9, 0x4E2D, 0x1F600, 34, 92))) for _ in range(random.randrange(4))
    )
    return json.dumps(text, ensure_ascii=random.random() < 0.5)


def _base64(random: Random) -> str:
    text = b64encode(random.randbytes(random.randrange(12))).decode()
    if random.random() < 0.4:
        at = random.randint(0, len(text))
        text = text[:at] + random.choice(("", "=", " ", "\n", "!", "é", "A", '"')) + text[at + random.randint(0, 2) :]
    if random.random() < 0.2:
        return f"'{text}'"
    return json.dumps(text) if random.random() < 0.8 else f'"{text}"'


def _time(random: Random) -> str:
    if random.random() < 0.2:
        return _integer(random)
    if random.random() < 0.4:
        return json.dumps(random.choice(TIMES))
    date = f"{random.randint(1, 9999):04}-{random.randint(1, 12):02}-{random.randint(1, 30):02}"
    clock = f"{random.randint(0, 23):02}:{random.randint(0, 59):02}:{random.randint(0, 59):02}"
    fraction = random.choice(("", f".{random.randrange(10**6):06}", f".{random.randrange(1000):03}"))
    zone = random.choice(("Z", "", "+01:00", "-09:30"))
    return json.dumps(random.choice((date, f"{date}T{clock}{fraction}{zone}", f"{date} {clock}{fraction}{zone}")))


_SIMPLE: Mapping[str, Callable[[Random], str]] = {
    "BOOLEAN": lambda random: random.choice(("true", "false", "true", "false", '"true"', "1")),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), _integer),
    **dict.fromkeys(("FLOAT", "DOUBLE", "DECIMAL"), _number),
    "STRING": _text,
    "BINARY": _base64,
    **dict.fromkeys(("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"), _time),
}
_ARROW = {
    "BOOLEAN": pyarrow.bool_(), "TINYINT": pyarrow.int8(), "SMALLINT": pyarrow.int16(), "INT": pyarrow.int32(),
    "BIGINT": pyarrow.int64(), "FLOAT": pyarrow.float32(), "DOUBLE": pyarrow.float64(), "STRING": pyarrow.string(),
    "DATE": pyarrow.date32(), "TIMESTAMP": pyarrow.timestamp("us", "UTC"), "TIMESTAMP_NTZ": pyarrow.timestamp("us"),
}  # fmt: skip
