"""Logs and batches for the tests of the storage layer."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from barnabas.core.seams import Disk
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import Compression
from barnabas.records.reader import read_records
from barnabas.records.record import Record
from barnabas.storage.disk import RealDisk
from barnabas.storage.log import AppendInfo, Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.recovery import LogState, Recovery, create_log, open_log

NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))


def batch(
    values: Sequence[bytes] = (b"value",),
    *,
    key: bytes | None = b"key",
    timestamp_ms: int = NOW_MS,
    compression: Compression = Compression.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> memoryview:
    """One batch as a client sends it; `producer` is id, epoch and base sequence; times rise by 1 ms per record."""
    builder = BatchBuilder(
        compression,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        transactional=transactional,
    )
    for number, value in enumerate(values):
        builder.append(key, value, timestamp_ms=timestamp_ms + number if timestamp_ms >= 0 else -1)
    return memoryview(builder.build())


def new_log(directory: object, disk: Disk | None = None, **config: Any) -> Log:
    disk = disk or RealDisk()
    disk.make_dirs(str(directory))
    return create_log(disk, str(directory), "topic", 0, TOPIC_ID, LogConfig(**config), random.Random(1), NOW_MS)


def reopen(
    directory: object, state: LogState | None = None, disk: Disk | None = None, **config: Any
) -> tuple[Log, Recovery]:
    """Open a directory again: after a crash unless `state` says otherwise."""
    return open_log(
        disk or RealDisk(), str(directory), "topic", 0, TOPIC_ID, LogConfig(**config), random.Random(1), NOW_MS,
        state or LogState(),
    )  # fmt: skip


CLEAN = LogState(is_clean=True)


def append(log: Log, *values: bytes, now_ms: int = NOW_MS, epoch: int = 0, **options: Any) -> AppendInfo:
    info = log.append_as_leader(batch(values or (b"value",), **options), epoch, now_ms)
    log.set_high_watermark(log.log_end_offset)
    return info


def read_all(log: Log) -> list[Record]:
    """Every data record, read as a consumer does."""
    records: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, 1 << 20, log.log_end_offset, True)
        records += read_records(memoryview(found.read()), from_offset=offset)
        assert len(found), f"nothing at {offset}"
        offset = found.next_offset
    return records


def values(log: Log) -> list[bytes | None]:
    return [record.value for record in read_all(log)]
