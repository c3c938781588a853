"""Records per second through the codec, compiled and not: into objects, into columns, and out of both.

    python -m benchmarks.records [--json FILE]

One core, records of 100 bytes without keys in batches of 16 KiB (a producer's default) and of 1 MiB. A figure is the
best of many short rounds in CPU time, so that a busy machine disturbs it little. Ends with 1 if the compiled codec is
missing or stays under the bars.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from barnabas.records import codec, column_codec, engine, row_codec
from barnabas.records.builder import BatchBuilder
from barnabas.records.column_batches import Rows
from barnabas.records.columns import Column, Columns, decode_columns
from barnabas.records.reader import read_records

RECORD_BYTES = 100
FETCH_BYTES = 1 << 20
SECONDS_PER_FIGURE = 0.35
BARS = {"columns, all": 20e6, "objects": 2e6}  # records/s, in batches of 1 MiB
BAR_BATCH = 1 << 20


def fetched_batches(batch_bytes: int) -> tuple[memoryview, BatchBuilder]:
    """About a megabyte of batches, and the builder of one."""
    value = bytes(index * 37 % 251 for index in range(RECORD_BYTES))
    builder = BatchBuilder()
    while builder.estimated_size + RECORD_BYTES + 10 <= batch_bytes:
        builder.append(None, value, (), 1_700_000_000_000 + len(builder) // 10)
    count = max(1, FETCH_BYTES // builder.estimated_size)
    return memoryview(b"".join(builder.build(index * len(builder)) for index in range(count))), builder


def rate(work: Callable[[], object], records: int, bar: float = 0) -> float:
    """Records per second of CPU time in the best round; a figure that misses its bar is given more rounds."""
    best, spent = float("inf"), 0.0
    while spent < SECONDS_PER_FIGURE or (records / best < bar and spent < 10 * SECONDS_PER_FIGURE):
        start = time.process_time()
        work()
        took = time.process_time() - start
        best, spent = min(best, took), spent + max(took, 1e-6)
    return records / best


def measure(batch_bytes: int, bars: Mapping[str, float]) -> dict[str, float]:
    fetched, builder = fetched_batches(batch_bytes)
    columns = decode_columns(fetched)
    assert columns.timestamp_ms is not None
    timestamps, rows, each = columns.timestamp_ms, columns.rows, len(builder)
    values = [b"x" * RECORD_BYTES] * each
    return {
        "objects": rate(lambda: list(read_records(fetched)), rows, bars.get("objects", 0)),
        "columns, all": rate(lambda: decode_columns(fetched), rows, bars.get("columns, all", 0)),
        "columns, value": rate(lambda: decode_columns(fetched, Column.VALUE), rows),
        "encode objects": rate(lambda: _encode(values), each),
        "encode columns": rate(lambda: _encode_columns(columns, timestamps, batch_bytes), rows),
    }


def _encode(values: list[bytes]) -> bytearray:
    builder = BatchBuilder()
    builder.extend(values, timestamp_ms=1_700_000_000_000)
    return builder.build()


def _encode_columns(columns: Columns, timestamps: memoryview, batch_bytes: int) -> None:
    rows = Rows(None, columns.value, timestamps)
    done = 0
    while done < rows.count:
        _, done = rows.cut(None, done, rows.count, batch_bytes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--json", type=Path, default=Path(".benchmarks/records.json"), help="where to write the figures"
    )
    output: Path = parser.parse_args().json
    choice = engine.choose(pure=False)
    if not choice.compiled:
        print(f"there is no compiled codec to measure: {choice.reason}", file=sys.stderr)
        return 1

    print(
        f"{platform.machine()}, Python {platform.python_version()}, records of {RECORD_BYTES} B, M records/s per core\n"
    )
    print(f"{'':16} {'batch':>8} {'compiled':>10} {'Python':>10} {'ratio':>8}")
    figures: list[dict[str, object]] = []
    low: list[str] = []
    for batch_bytes in (16 << 10, BAR_BATCH):
        engine.codec, engine.column_codec, engine.row_codec = choice.codec, choice.column_codec, choice.row_codec
        bars = BARS if batch_bytes == BAR_BATCH else {}
        compiled = measure(batch_bytes, bars)
        engine.codec, engine.column_codec, engine.row_codec = codec, column_codec, row_codec
        plain = measure(batch_bytes, {})
        for work, fast in compiled.items():
            slow = plain[work]
            size = f"{batch_bytes >> 10} KiB"
            print(f"{work:16} {size:>8} {fast / 1e6:10.2f} {slow / 1e6:10.2f} {fast / slow:7.1f}x")
            figures.append({"work": work, "batch_bytes": batch_bytes, "compiled": fast, "uncompiled": slow})
            if fast < bars.get(work, 0):
                low.append(f"{work}: {fast / 1e6:.2f} M records/s, the bar is {BARS[work] / 1e6:.0f}")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({"machine": platform.machine(), "record_bytes": RECORD_BYTES, "figures": figures}))
    for complaint in low:
        print(f"under the bar: {complaint}", file=sys.stderr)
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
