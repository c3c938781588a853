"""The files of a pipeline in a lake against those of a hand-written job: their size, and the time to read them all.

Both hold the same rows and columns, also those that say where a row comes from, in Parquet with snappy, by hour. They
are read whole by pyarrow, in turns. Ends with 1 if a goal is missed; little work (--quick) is too little for that.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from benchmarks import process_tree, report
from benchmarks.pipeline_works import QUICK_RECORDS, WORKS, Work, pipeline_text
from benchmarks.report import BARNABAS, Figure, Round
from benchmarks.topic_filling import fill
from tests.peers import ROOT, BarnabasServer

BY_HAND = "hand-written"
PARTITIONS = 6
TIMEOUT_S = 1800
ORIGIN = ["topic", "partition", "offset", "timestamp"]
GOAL = 1.05
WRITTEN = tuple(work for work in WORKS if work.name in ("small", "wide"))


def figures() -> Iterator[Figure]:
    for work in WRITTEN:
        yield Figure(f"{work.name}-size", f"{work.title}: size of the files", "MB", False, GOAL)
        yield Figure(f"{work.name}-scan", f"{work.title}: all columns read", "s", False, GOAL)
        yield Figure(f"{work.name}-files", f"{work.title}: number of files", "", False, None)


class Files:
    """The files of each side for a work, written once."""

    def __init__(self, work: Work, address: str, scratch: Path) -> None:
        self._work = work
        fill([address], work.topic, work.values, work.records, PARTITIONS)
        place = scratch / work.name
        place.mkdir()
        by_hand = {"address": address, "topic": work.topic, "decoder": work.values.format, "kept": ORIGIN,
                   "schema": work.values.schema, "place": f"{place}/rows"}  # fmt: skip
        _run("by_pipeline", text=pipeline_text(work, address), place=str(place))
        _run("by_hand", **by_hand)
        self._directories = {BARNABAS: place / "0" / "lake", BY_HAND: place / "rows" / "0"}

    def measure(self, side: str) -> dict[str, float]:
        """Their files alone are read, not the directories in which a lake keeps its manifest."""
        files = [str(file) for file in self._directories[side].glob("date=*/hour=*/*.parquet")]
        data = ds.dataset(files, format="parquet")
        began = time.perf_counter()
        rows = sum(batch.num_rows for batch in data.to_batches())
        seconds = time.perf_counter() - began
        if rows != self._work.records:
            raise RuntimeError(
                f"{rows} rows of {self._work.name} on the side of {side} instead of {self._work.records}"
            )
        size_bytes = sum(Path(file).stat().st_size for file in files)
        found = {"size": size_bytes / 1e6, "scan": seconds, "files": float(len(files))}
        return {f"{self._work.name}-{figure}": value for figure, value in found.items()}


def _run(module: str, **arguments: Any) -> None:
    process_tree.run([sys.executable, "-m", f"benchmarks.{module}", json.dumps(arguments)], TIMEOUT_S)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lake_files", description="files of a lake")
    parser.add_argument("--rounds", type=int, default=5, help="how often all are read (default: 5)")
    parser.add_argument("--quick", action="store_true", help="little work, one round: to see that all runs")
    options = parser.parse_args()
    machine, rounds = report.machine(), list[Round]()
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as directory:
        scratch = Path(directory)
        with BarnabasServer(scratch / "broker") as server:
            works = [work._replace(records=QUICK_RECORDS) if options.quick else work for work in WRITTEN]
            written = [Files(work, server.address, scratch) for work in works]
        for files in written:
            for side in (BARNABAS, BY_HAND):
                files.measure(side)  # from now on they are in the memory of the system
        for number in range(1 if options.quick else options.rounds):
            measured: dict[str, dict[str, float]] = {BARNABAS: {}, BY_HAND: {}}
            for files in written:
                for side in (BARNABAS, BY_HAND)[:: -1 if number % 2 else 1]:
                    measured[side].update(files.measure(side))
            rounds.append(measured)
    shown, work_name = list(figures()), "quick" if options.quick else "full"
    report.show(shown, rounds, machine, work_name, title="Files of a lake", peer=BY_HAND)
    saved = report.save("lake-files", shown, rounds, machine, work_name, ROOT / ".benchmarks", peer=BY_HAND)
    print(f"written to {saved}")
    return int(report.is_short(shown, rounds, BY_HAND) and not options.quick)


if __name__ == "__main__":
    sys.exit(main())
