"""The files of a partition, entry by entry, for people who look for what is wrong.

Storage refuses a damaged file as a whole and rebuilds it; here every entry is shown as far as it can be read, and one
that cannot be right carries a `problem`. Each kind of file is told by its name.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from barnabas.records.batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, CorruptBatch, check_batch, read_header
from barnabas.records.compression import Compression
from barnabas.records.crc import crc32c
from barnabas.records.reader import records_of

Row = dict[str, Any]

_INDEX = struct.Struct(">ii")
_TIME_INDEX = struct.Struct(">qi")
_TXN_INDEX = struct.Struct(">hqqqq")
_SNAPSHOT_HEAD = struct.Struct(">hIi")
_SNAPSHOT = struct.Struct(">qhiqiqiq")
_SNAPSHOT_CRC_END = 6


def dump_file(path: Path, *, records: bool = False) -> Iterator[Row]:
    """The entries of a file, each with a `problem` that is None if nothing is wrong; ValueError for an unknown kind."""
    name = path.name.removesuffix(".deleted").removesuffix(".cleaned").removesuffix(".swap")
    for pattern, reader in _READERS:
        if match := re.fullmatch(pattern, name):
            base_offset = int(match[1]) if match.groups() else 0
            return reader(path, base_offset, records)
    raise ValueError(
        f"{path.name} is no file of a log: expected .log, .index, .timeindex, .txnindex, .snapshot or a checkpoint"
    )


def _log(path: Path, base_offset: int, with_records: bool) -> Iterator[Row]:
    with path.open("rb") as file:
        if not path.stat().st_size:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
            yield from _batches(view, base_offset, with_records)


def _batches(view: memoryview, base_offset: int, with_records: bool) -> Iterator[Row]:
    position, next_offset, end = 0, base_offset, len(view)
    while position < end:
        if end - position < HEADER_SIZE:
            yield {"position": position, "problem": f"{end - position} bytes are left, too few for a batch header"}
            return
        header = read_header(view, position)
        problem = _batch_problem(view, position, header, next_offset)
        if with_records and problem is None:
            yield from _records(view[position : position + header.size], header)
        else:
            yield _batch_row(header, position, problem)
        if header.batch_length < HEADER_SIZE - LOG_OVERHEAD or position + header.size > end:
            return  # where the next batch begins cannot be told
        position += header.size
        next_offset = max(next_offset, header.next_offset)


def _batch_problem(view: memoryview, position: int, header: BatchHeader, next_offset: int) -> str | None:
    try:
        with view[position : position + max(header.size, HEADER_SIZE)] as batch:
            check_batch(batch)
    except CorruptBatch as error:
        return str(error).replace("batch at position 0", "batch", 1)
    if header.base_offset < next_offset:
        return f"base offset {header.base_offset} does not follow {next_offset - 1}"
    return None


def _batch_row(header: BatchHeader, position: int, problem: str | None) -> Row:
    codec = header.compression
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "position": position,
        "bytes": header.size,
        "leader_epoch": header.partition_leader_epoch,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "timestamp_type": "log_append_time" if header.is_log_append_time else "create_time",
        "compression": Compression(codec).codec_name if codec in set(Compression) else str(codec),
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "problem": problem,
    }


def _records(batch: memoryview, header: BatchHeader) -> Iterator[Row]:
    with batch:
        try:
            found = records_of(batch)
        except CorruptBatch as error:
            yield {"offset": header.base_offset, "problem": str(error)}
            return
    for record in found:
        yield {
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "key": record.key,
            "value": record.value,
            "headers": dict(record.headers),
            "problem": None,
        }


def _offset_index(path: Path, base_offset: int, _: bool) -> Iterator[Row]:
    last = (-1, -1)
    for number, (relative, position) in _entries(path, _INDEX):
        entry = (relative, position)
        problem = None if relative > last[0] and position > last[1] else "does not rise"
        yield {"entry": number, "offset": base_offset + relative, "position": position, "problem": problem}
        last = entry
    yield from _torn(path, _INDEX)


def _time_index(path: Path, base_offset: int, _: bool) -> Iterator[Row]:
    last = (-1, -1)
    for number, (timestamp, relative) in _entries(path, _TIME_INDEX):
        problem = None if timestamp > last[0] and relative >= last[1] else "does not rise"
        yield {"entry": number, "timestamp": timestamp, "offset": base_offset + relative, "problem": problem}
        last = (timestamp, relative)
    yield from _torn(path, _TIME_INDEX)


def _txn_index(path: Path, _: int, __: bool) -> Iterator[Row]:
    for number, (version, producer_id, first, last, stable) in _entries(path, _TXN_INDEX):
        yield {
            "entry": number,
            "producer_id": producer_id,
            "first_offset": first,
            "last_offset": last,
            "last_stable_offset": stable,
            "problem": None if version == 0 else f"version {version} is not known",
        }
    yield from _torn(path, _TXN_INDEX)


def _snapshot(path: Path, _: int, __: bool) -> Iterator[Row]:
    data = path.read_bytes()
    if len(data) < _SNAPSHOT_HEAD.size:
        yield {"problem": f"{len(data)} bytes are too few for a snapshot"}
        return
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    body = data[_SNAPSHOT_HEAD.size :]
    problem = None
    if version != 1:
        problem = f"version {version} is not known"
    elif crc32c(data[_SNAPSHOT_CRC_END:]) != crc:
        problem = "the CRC is wrong"
    elif len(body) != count * _SNAPSHOT.size:
        problem = f"{len(body)} bytes do not hold {count} entries"
    for entry in _SNAPSHOT.iter_unpack(body[: len(body) - len(body) % _SNAPSHOT.size]):
        names = (
            "producer_id",
            "producer_epoch",
            "last_sequence",
            "last_offset",
            "offset_delta",
            "timestamp",
            "coordinator_epoch",
            "current_txn_first_offset",
        )
        yield {**dict(zip(names, entry)), "problem": problem}
    if problem and len(body) < _SNAPSHOT.size:
        yield {"problem": problem}


def _checkpoint(entry: str) -> Callable[[Path, int, bool], Iterator[Row]]:
    """A reader of text files: version 0, a count, and lines that match the pattern `entry`."""

    def read(path: Path, _: int, __: bool) -> Iterator[Row]:
        content = path.read_text(errors="replace").splitlines()
        version, count = [*content, "", ""][:2]
        if version != "0":
            yield {"problem": f"version {version!r} is not known"}
        for line in content[2:]:
            if match := re.fullmatch(entry, line):
                numbers = {name: text if name == "topic" else int(text) for name, text in match.groupdict().items()}
                yield {**numbers, "problem": None}
            else:
                yield {"problem": f"line {line!r} is damaged"}
        if count != str(len(content[2:])):
            yield {"problem": f"{len(content[2:])} lines, but {count or 'none'} announced"}

    return read


def _entries(path: Path, entry: struct.Struct) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Whole entries, without the room of zeros that Kafka keeps at the end of an index that it writes to."""
    data = path.read_bytes()
    used = -(-len(data.rstrip(b"\0")) // entry.size) * entry.size
    whole = len(data) - len(data) % entry.size
    return enumerate(entry.iter_unpack(data[: min(used, whole)]))


def _torn(path: Path, entry: struct.Struct) -> Iterator[Row]:
    """A part of an entry at the end, as a crash leaves it."""
    if torn := path.stat().st_size % entry.size:
        yield {"problem": f"{torn} bytes are left, less than an entry of {entry.size}"}


_READERS: tuple[tuple[str, Callable[[Path, int, bool], Iterator[Row]]], ...] = (
    (r"(\d{20})\.log", _log),
    (r"(\d{20})\.index", _offset_index),
    (r"(\d{20})\.timeindex", _time_index),
    (r"(\d{20})\.txnindex", _txn_index),
    (r"(\d{20})\.snapshot", _snapshot),
    (r"leader-epoch-checkpoint", _checkpoint(r"(?P<epoch>\d+) (?P<start_offset>\d+)")),
    (r".*-offset-checkpoint", _checkpoint(r"(?P<topic>\S+) (?P<partition>\d+) (?P<offset>\d+)")),
)
