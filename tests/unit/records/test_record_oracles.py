"""Programs that others wrote read our batches, and we read theirs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_python_records
import pytest

from barnabas.records.builder import BatchBuilder
from barnabas.records.columns import decode_columns
from barnabas.records.compression import Compression
from barnabas.records.control import ControlType, EndMarker, build_end_marker
from barnabas.records.reader import records_of
from barnabas.records.record import Record
from tests import peers

LIBRARIES = [pytest.param(aiokafka_records, id="aiokafka"), pytest.param(kafka_python_records, id="kafka-python")]
RECORDS = [
    Record(
        offset,
        1_700_000_000_000 + 7 * offset,
        None if offset % 5 == 0 else b"key %d" % offset,
        None if offset % 7 == 3 else b"a value that compresses " * (offset % 50),
        (("trace", b"%d" % offset), ("empty", b""), ("café", None)) if offset % 3 == 0 else (),
    )
    for offset in range(300)
]


def batch_of(records: list[Record], compression: Compression, base_offset: int = 0) -> bytearray:
    builder = BatchBuilder(compression)
    for record in records:
        builder.append(record.key, record.value, record.headers, record.timestamp_ms)
    return builder.build(base_offset, leader_epoch=0)


@pytest.mark.usefixtures("either_engine")
@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("library", LIBRARIES)
def test_libraries_read_what_we_write(library: Any, compression: Compression) -> None:
    batch = library.DefaultRecordBatch(bytes(batch_of(RECORDS, compression)))
    assert batch.validate_crc()
    assert [
        Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers)) for record in batch
    ] == RECORDS


@pytest.mark.usefixtures("either_engine")
@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("library", LIBRARIES)
def test_we_read_what_libraries_write(library: Any, compression: Compression) -> None:
    builder = library.DefaultRecordBatchBuilder(2, int(compression), 0, -1, -1, -1, 1 << 20)
    for record in RECORDS:
        builder.append(record.offset, record.timestamp_ms, record.key, record.value, list(record.headers))
    batch = memoryview(bytes(builder.build()))
    assert records_of(batch) == RECORDS
    assert decode_columns(batch).rows == len(RECORDS)


@pytest.mark.parametrize("library", LIBRARIES)
def test_uncompressed_batches_are_the_same_byte_for_byte(library: Any) -> None:
    builder = library.DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for record in RECORDS:
        builder.append(record.offset, record.timestamp_ms, record.key, record.value, list(record.headers))
    theirs, ours = bytearray(builder.build()), batch_of(RECORDS, Compression.NONE)
    theirs[12:16] = ours[12:16]  # the leader epoch, which brokers write
    assert bytes(theirs) == bytes(ours)


@pytest.mark.peers
def test_kafkas_own_dump_tool_reads_every_codec_and_the_control_batches(tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000000.log"
    data, offset = bytearray(), 0
    large = [record._replace(value=(record.value or b"") * 10) for record in RECORDS]  # many blocks of every codec
    for compression in Compression:
        for records in (RECORDS, large):
            data += batch_of(records, compression, offset)
            offset += len(records)
    for kind in ControlType:
        marker = EndMarker(kind, coordinator_epoch=21)
        data += build_end_marker(
            marker, producer_id=4711, producer_epoch=3, timestamp_ms=5, base_offset=offset, leader_epoch=0
        )
        offset += 1
    log.write_bytes(data)
    output = peers.kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--print-data-log", "--files", str(log)
    )
    batches = re.findall(r"^baseOffset: .* isvalid: (\w+)", output, re.MULTILINE)
    assert batches == ["true"] * (2 * len(Compression) + len(ControlType))
    codecs = re.findall(r"^baseOffset: .* compresscodec: (\w+)", output, re.MULTILINE)
    assert codecs[: 2 * len(Compression) : 2] == [codec.codec_name for codec in Compression]
    dumped = re.findall(
        r"^\| offset: (\d+) CreateTime: (\d+) keySize: (-?\d+) valueSize: (-?\d+)", output, re.MULTILINE
    )
    expected = [
        (record.timestamp_ms, -1 if record.key is None else len(record.key), -1 if value is None else len(value))
        for _ in Compression
        for records in (RECORDS, large)
        for record in records
        for value in [record.value]
    ]
    found = [(int(timestamp), int(key), int(value)) for _, timestamp, key, value in dumped]
    assert found[: len(expected)] == expected
    assert [int(row[0]) for row in dumped] == list(range(offset))
    assert output.count("headerKeys: [trace,empty,café]") == 2 * len(Compression) * len(RECORDS[::3])
    assert re.findall(r"endTxnMarker: (\w+) coordinatorEpoch: (\d+)", output) == [("ABORT", "21"), ("COMMIT", "21")]
