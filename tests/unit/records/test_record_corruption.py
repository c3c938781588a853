"""Bytes that lie: both engines refuse the same ones, and read the same from the others."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from barnabas.records import codec, column_codec, engine
from barnabas.records.batch import HEADER_SIZE, BatchHeader, CorruptBatch, read_header
from barnabas.records.builder import BatchBuilder
from tests.unit.records.conftest import use_engine


def sample(count: int, headers: bool) -> tuple[bytes, BatchHeader]:
    builder = BatchBuilder()
    for index in range(count):
        builder.append(
            None if index % 3 == 0 else b"key %d" % index,
            None if index % 4 == 0 else b"v" * (index * 13 % 150),
            [("header", b"x" * index), ("other", None)] if headers and index % 2 else (),
            1_700_000_000_000 + index * 40,
        )
    batch = bytes(builder.build(100))
    return batch[HEADER_SIZE:], read_header(batch)


def outcome(read: Callable[..., Any], *arguments: object) -> object:
    try:
        return read(*arguments)
    except CorruptBatch as error:
        return str(error)


def columns(module: ModuleType, section: bytes, header: BatchHeader) -> object:
    sink = module.ColumnSink(True, True, True, True, True)
    rows = sink.decode(section, header, 0, 2**62)
    found: list[object] = [rows]
    offsets, timestamps, header_ends = (bytes(buffer) for buffer in sink.integers())
    found += [offsets[: 8 * rows], timestamps[: 8 * rows], header_ends[: 8 * rows + 8]]
    header_rows = int.from_bytes(header_ends[8 * rows : 8 * rows + 8], "little")
    for binary, count in zip(sink.binaries(), (rows, rows, header_rows, header_rows)):
        data, ends, validity = (bytes(buffer) for buffer in binary.buffers())
        size = int.from_bytes(ends[8 * count : 8 * count + 8], "little")
        bits = int.from_bytes(validity, "little") & (1 << count) - 1
        found += [data[:size], ends[: 8 * count + 8], bits]
    return found


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Any:
    use_engine("compiled", monkeypatch)
    return engine.codec


def test_mutated_records_have_the_same_outcome_on_both_engines(compiled: Any) -> None:
    chance = random.Random(20)
    samples = [sample(1, True), sample(8, True), sample(30, False)]
    refused = read = 0
    interesting = [0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF]
    for _ in range(4000):
        section, header = chance.choice(samples)
        damaged = bytearray(section)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(damaged))
            how = chance.randrange(4)
            if how == 0:
                damaged[at] = chance.choice(interesting)
            elif how == 1:
                damaged[at] = chance.randrange(256)
            elif how == 2:
                del damaged[at : at + chance.randint(1, 3)]
            else:
                damaged[at:at] = chance.choices(interesting, k=chance.randint(1, 11))
            if not damaged:
                break
        if chance.random() < 0.2:
            header = header._replace(
                record_count=chance.choice([-1, 0, 1, header.record_count + 1, 2**31 - 1]),
                last_offset_delta=chance.choice([-1, 0, 5, 2**31 - 1]),
                base_timestamp=chance.choice([-1, 0, 2**63 - 1, -(2**63)]),
                attributes=chance.choice([0, 8]),
            )
        expected = outcome(codec.decode_records, bytes(damaged), header, 0)
        assert outcome(compiled.decode_records, bytes(damaged), header, 0) == expected
        wanted = (damaged, header, chance.random() < 0.5, 0, 2000, 5)
        assert outcome(compiled.invalid_records, *wanted) == outcome(codec.invalid_records, *wanted)
        in_columns = outcome(columns, column_codec, bytes(damaged), header)
        assert outcome(columns, compiled, bytes(damaged), header) == in_columns
        assert isinstance(expected, str) == isinstance(in_columns, str)
        refused, read = refused + isinstance(expected, str), read + isinstance(expected, list)
    assert refused > 1000
    assert read > 100


@pytest.mark.usefixtures("either_engine")
def test_every_truncation_of_a_section_is_corrupt() -> None:
    section, header = sample(8, True)
    for size in range(len(section)):
        with pytest.raises(CorruptBatch):
            engine.codec.decode_records(section[:size], header, 0)
    with pytest.raises(CorruptBatch, match="1 bytes are left over"):
        engine.codec.decode_records(section + b"\x00", header, 0)


@pytest.mark.usefixtures("either_engine")
@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (b"\xff\xff\xff\xff\xff\x01", "longer than what is left"),  # a varint of six bytes
        (b"\xfe\xff\xff\xff\x0f", "longer than what is left"),  # 2**31 - 1
        (b"\x01", "longer than what is left"),  # -1
        (b"\x0c\x00\x00\x00\x03\x01\x00", "a length inside a record"),  # a key of -2 bytes
        (b"\x0c\x00\x00\x00\x01\x03\x00", "a length inside a record"),  # a value of -2 bytes
        (b"\x0c\x00\x00\x00\x01\x01\x01", "a length inside a record"),  # -1 headers
        (b"\x0c\x00\x00\x00\x01\x01\x02", "a length inside a record"),  # a header that is not there
        (b"\x0c\x00\x00\x01\x01\x01\x00", "offset delta -1"),
        (b"\x0c\x00\x00\x02\x01\x01\x00", "offset delta 1; the last is 0"),
        (b"\x1e\x00" + b"\xff" * 9 + b"\x01\x00\x01\x01\x00", "timestamp delta -9223372036854775808"),
    ],
)
def test_each_kind_of_lie_is_named(damage: bytes, complaint: str) -> None:
    _, header = sample(1, False)
    section = damage + bytes(7) * (len(damage) < 7)
    with pytest.raises(CorruptBatch, match=complaint):
        engine.codec.decode_records(section, header, 0)
