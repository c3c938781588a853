"""Megabytes of log that one core compacts in a second: records of 1 KB, a million distinct keys.

    python -m benchmarks.compaction [--json FILE]

A log of a million keys, of which a quarter is written a second time, is compacted by a round like the cleaner's: the
keys are read, then all records, and what is left is written and synced. Ends with 1 under the bar, or if the result
is not what it should be.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import tempfile
import time
from pathlib import Path

from barnabas.records import engine
from barnabas.records.builder import BatchBuilder
from barnabas.storage import swap
from barnabas.storage.cleaner import examine, job_for
from barnabas.storage.cleaning import clean
from barnabas.storage.disk import RealDisk
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.recovery import create_log

RECORD_BYTES = 1000
KEYS = 1_000_000
REWRITTEN = KEYS // 4
BATCH_RECORDS = 100
BAR = 50.0  # MB/s
NOW_MS = 1_700_000_000_000
SETTINGS = {
    "log.cleaner.dedupe.buffer.size": 128 << 20,
    "log.cleaner.io.buffer.load.factor": 0.9,
    "log.cleaner.io.buffer.size": 512 << 10,
}


def filled_log(directory: str) -> Log:
    """Every key once, in batches of about 100 KB; then every fourth again."""
    config = LogConfig(cleanup_policy=("compact",), segment_bytes=256 << 20)
    log = create_log(RealDisk(), directory, "bench", 0, bytes(16), config, random.Random(1), NOW_MS)
    value = random.Random(2).randbytes(RECORD_BYTES - 20)
    numbers = [*range(KEYS), *range(0, KEYS, KEYS // REWRITTEN)]
    for start in range(0, len(numbers), BATCH_RECORDS):
        builder = BatchBuilder()
        keys = [b"key %016d" % number for number in numbers[start : start + BATCH_RECORDS]]
        builder.extend([value] * len(keys), keys, NOW_MS)
        log.append_from_coordinator(memoryview(builder.build()), 0, NOW_MS)
    log.set_high_watermark(log.log_end_offset)
    log.roll(log.log_end_offset, NOW_MS)
    job = log.prepare_flush()
    job.run(log.disk)
    log.complete_flush(job)
    return log


def compact(log: Log) -> float:
    """One round; the seconds that it took."""
    started = time.monotonic()
    job = job_for(examine(log, NOW_MS), NOW_MS, SETTINGS, b"sixteen bytes...")
    for group in clean(log.disk, job):
        old = [segment for segment in log.segments if segment.base_offset in group.base_offsets]
        swap.replace_segments(log, old, group.size)
    return time.monotonic() - started


def records_left(log: Log) -> int:
    return sum(header.record_count for segment in log.segments for _, header in segment.headers())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=Path(".benchmarks/compaction.json"), help="where to write it")
    output: Path = parser.parse_args().json
    if not engine.COMPILED:
        print(f"there is no compiled codec to measure: {engine.REASON}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="barnabas-compaction-") as directory:
        log = filled_log(directory)
        megabytes = log.size_bytes / 1e6
        cpu_started = time.process_time()
        seconds = compact(log)
        cpu_seconds = time.process_time() - cpu_started
        left = records_left(log)
        log.release()
    rate = megabytes / seconds
    print(
        f"{platform.machine()}, Python {platform.python_version()}: {megabytes:.0f} MB of {RECORD_BYTES} B records, "
        f"{KEYS} keys, compacted in {seconds:.1f} s ({cpu_seconds:.1f} s of CPU): {rate:.0f} MB/s, the bar is {BAR:.0f}"
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    figures = {"megabytes": megabytes, "seconds": seconds, "cpu_seconds": cpu_seconds, "megabytes_per_second": rate}
    output.write_text(json.dumps({"machine": platform.machine(), "keys": KEYS, **figures}))
    if left != KEYS:
        print(f"{left} records are left of {KEYS} keys", file=sys.stderr)
        return 1
    return 0 if rate >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
