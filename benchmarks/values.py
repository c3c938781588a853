"""Values of the records that pipelines are measured with. Each is made from its number; their times span a day."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from functools import partial
from random import Random
from typing import NamedTuple

from fastavro import parse_schema, schemaless_writer

FIRST_SECOND = 1_794_960_000
SECONDS = 86_400
SMALL_SCHEMA = "id BIGINT, user STRING, amount DOUBLE, at TIMESTAMP"
WIDE_SCHEMA = (
    "id BIGINT, at TIMESTAMP, user STRUCT<id: BIGINT, name: STRING, tags: ARRAY<STRING>>, "
    "items ARRAY<STRUCT<sku: STRING, count: INT, price: DECIMAL(10,2)>>, attributes MAP<STRING, STRING>, note STRING"
)
AVRO_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Click",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "user", "type": "string"},
            {"name": "session", "type": "string"},
            {"name": "page", "type": "string"},
            {"name": "referrer", "type": ["null", "string"]},
            {"name": "amount", "type": "double"},
            {"name": "count", "type": "int"},
            {"name": "score", "type": "float"},
            {"name": "paid", "type": "boolean"},
        ],
    }
)
CONFLUENT_HEADER = b"\0\0\0\0\1"
_PARSED_AVRO = parse_schema(json.loads(AVRO_SCHEMA))


class Values(NamedTuple):
    """`make` takes the number of a record, how many there are, and a source of randomness."""

    name: str
    make: Callable[[int, int, Random], bytes]
    format: str
    schema: str


def _second(number: int, total: int) -> int:
    return FIRST_SECOND + number * SECONDS // total


def _time(number: int, total: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(_second(number, total)))


def small(number: int, total: int, random: Random) -> bytes:
    return b'{"id":%d,"user":"user-%d","amount":%.2f,"at":"%s"}' % (
        number,
        number % 1000,
        random.random() * 100,
        _time(number, total).encode(),
    )


def partly_unsure(share: float, number: int, total: int, random: Random) -> bytes:
    """A share of the values has a name twice, which is outside the grammar of our decoder."""
    value = small(number, total, random)
    return b'{"id":0,' + value[1:] if random.random() < share else value


def wide(number: int, total: int, random: Random) -> bytes:
    row = {
        "id": number,
        "at": _time(number, total),
        "user": {"id": number % 1000, "name": f"user-{number % 1000}", "tags": ["new", "paid", "eu"]},
        "items": [{"sku": f"sku-{random.randrange(10_000)}", "count": 2, "price": 19.99} for _ in range(8)],
        "attributes": {f"attribute-{index}": f"value-{random.randrange(100)}" for index in range(8)},
        "note": "x" * 200,
    }
    return json.dumps(row, separators=(",", ":")).encode()


def avro(number: int, total: int, random: Random) -> bytes:
    out = io.BytesIO()
    out.write(CONFLUENT_HEADER)
    row = {
        "id": number,
        "at": _second(number, total) * 1000,
        "user": f"user-{number % 1000}",
        "session": f"session-{random.getrandbits(64):016x}",
        "page": f"/shop/item/{random.randrange(10_000):04}",
        "referrer": None if number % 4 else "https://shop.example",
        "amount": round(random.random() * 100, 2),
        "count": random.randrange(50),
        "score": random.random(),
        "paid": number % 3 == 0,
    }
    schemaless_writer(out, _PARSED_AVRO, row)
    return out.getvalue()


SMALL = Values("small", small, "json", SMALL_SCHEMA)
WIDE = Values("wide", wide, "json", WIDE_SCHEMA)
AVRO = Values("avro", avro, "avro", AVRO_SCHEMA)


def unsure(percent: int) -> Values:
    return Values(f"unsure-{percent}", partial(partly_unsure, percent / 100), "json", SMALL_SCHEMA)
