"""How the manifest is written: one JSON document in a file, with the digest of what it says.

A file that was cut off is no JSON any more, and one that was altered does not have its digest: both are told from a
whole one, whatever they look like.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeVar

from barnabas.spark.lake.errors import ManifestDamaged
from barnabas.spark.lake.manifest import DataFile, Entry, Move, Origin, State, Swap, Table, TopicPartition
from barnabas.spark.ranges import OffsetRange

FORMAT = 1
T = TypeVar("T")
Json = dict[str, Any]


def encode_entry(entry: Entry) -> bytes:
    return _sealed(
        {
            "version": entry.version,
            "kind": entry.kind,
            "writer": entry.writer,
            "table": _table_to_json(entry.table),
            "schema": entry.schema,
            "ranges": _ranges_to_json(entry.ranges),
            "begins": _numbers_to_json(entry.begins),
            "query": entry.query,
            "latest_ms": _numbers_to_json(entry.latest_ms),
            "add": [_file_to_json(file) for file in entry.add],
            "remove": entry.remove,
            "dropped": _numbers_to_json(entry.dropped),
            "complete_until": entry.complete_until,
            "staging": entry.staging,
            "moves": [[move.source, move.target] for move in entry.moves],
            "swap": entry.swap and [entry.swap.new, entry.swap.place, entry.swap.old],
            "marks": entry.marks,
        }
    )


def decode_entry(data: bytes, where: str) -> Entry:
    return _opened(
        data,
        where,
        lambda body: Entry(
            version=body["version"],
            kind=body["kind"],
            writer=body["writer"],
            table=_table_from_json(body["table"]),
            schema=body["schema"],
            ranges=_ranges_from_json(body["ranges"]),
            begins=_numbers_from_json(body["begins"]),
            query=body["query"] and (body["query"][0], body["query"][1]),
            latest_ms=_numbers_from_json(body["latest_ms"]),
            add=tuple(map(_file_from_json, body["add"])),
            remove=tuple(body["remove"]),
            dropped=_numbers_from_json(body["dropped"]),
            complete_until=body["complete_until"],
            staging=body["staging"],
            moves=tuple(Move(*move) for move in body["moves"]),
            swap=body["swap"] and Swap(*body["swap"]),
            marks=tuple(body["marks"]),
        ),
    )


def encode_state(state: State) -> bytes:
    return _sealed(
        {
            "version": state.version,
            "writer": state.writer,
            "table": _table_to_json(state.table),
            "schema": state.schema,
            "done": [[*partition, intervals] for partition, intervals in sorted(state.done.items())],
            "begins": _numbers_to_json(state.begins),
            "queries": state.queries,
            "latest_ms": _numbers_to_json(state.latest_ms),
            "files": [_file_to_json(file) for _, file in sorted(state.files.items())],
            "dropped": _numbers_to_json(state.dropped),
            "complete_until": state.complete_until,
        }
    )


def decode_state(data: bytes, where: str) -> State:
    return _opened(
        data,
        where,
        lambda body: State(
            version=body["version"],
            writer=body["writer"],
            table=_table_from_json(body["table"]),
            schema=body["schema"],
            done={(topic, partition): _intervals(pairs) for topic, partition, pairs in body["done"]},
            begins=_numbers_from_json(body["begins"]),
            queries=body["queries"],
            latest_ms=_numbers_from_json(body["latest_ms"]),
            files={file.path: file for file in map(_file_from_json, body["files"])},
            dropped=_numbers_from_json(body["dropped"]),
            complete_until=body["complete_until"],
        ),
    )


def _sealed(body: Json) -> bytes:
    text = _canonical(body)
    return f'{{"format":{FORMAT},"sha256":"{sha256(text.encode()).hexdigest()}","body":{text}}}\n'.encode()


def _opened(data: bytes, where: str, decode: Callable[[Json], T]) -> T:
    try:
        document = json.loads(data)
        form, digest, body = document["format"], document["sha256"], document["body"]
    except (ValueError, TypeError, KeyError):
        raise ManifestDamaged(f"{where} is cut off or no manifest: {len(data)} bytes that are not whole") from None
    if form != FORMAT:
        raise ManifestDamaged(f"{where} has format {form}; this release reads format {FORMAT}")
    if sha256(_canonical(body).encode()).hexdigest() != digest:
        raise ManifestDamaged(f"{where} was altered: its digest does not match")
    return decode(body)


def _canonical(body: Json) -> str:
    return json.dumps(body, sort_keys=True, separators=(",", ":"))


def _table_to_json(table: Table | None) -> Sequence[str] | None:
    return None if table is None else [table.format, table.time_column, table.date_name, table.hour_name]


def _table_from_json(given: Sequence[str] | None) -> Table | None:
    return Table(*given) if given else None


def _ranges_to_json(ranges: Sequence[OffsetRange]) -> list[list[Any]]:
    return [[one.topic, one.partition, one.start, one.end] for one in ranges]


def _ranges_from_json(given: Sequence[Sequence[Any]]) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange(*one) for one in given)


def _numbers_to_json(numbers: Mapping[TopicPartition, int]) -> list[list[Any]]:
    return [[*partition, number] for partition, number in sorted(numbers.items())]


def _numbers_from_json(given: Sequence[Sequence[Any]]) -> dict[TopicPartition, int]:
    return {(topic, partition): number for topic, partition, number in given}


def _intervals(pairs: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((start, end) for start, end in pairs)


def _file_to_json(file: DataFile) -> Json:
    return {
        "path": file.path,
        "hour": file.hour,
        "rows": file.rows,
        "size": file.size,
        "origins": [[*_ranges_to_json([origin.offsets])[0], origin.rows] for origin in file.origins],
        "late": file.is_late,
    }


def _file_from_json(given: Json) -> DataFile:
    origins = tuple(Origin(OffsetRange(*offsets), rows) for *offsets, rows in given["origins"])
    return DataFile(given["path"], given["hour"], given["rows"], given["size"], origins, given["late"])
