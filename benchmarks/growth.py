"""What more records and more partitions cost a pipeline from JSON to a lake, in time and in memory: `make bench`.

Ten times the records take about ten times as long, the driver keeps no more of them, and 100 partitions are loaded as
quickly as 6. Ends with 1 if a goal is missed; little work (--quick) is too little for that.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks import process_tree, report
from benchmarks.pipeline_works import Work, pipeline_text
from benchmarks.report import BARNABAS, Figure, Round
from benchmarks.topic_filling import fill
from benchmarks.values import SMALL
from tests.peers import ROOT, BarnabasServer

FULL, QUICK = 10_000_000, 60_000
FEW, MANY = 6, 100
TIMEOUT_S = 600
TENTH, FEW_PARTITIONS = "a tenth of them", f"{FEW} partitions"
RECORDS = [
    Figure("time", "topic to lake: job, warm", "s", False, 10.5),
    Figure("memory", "driver's memory after it", "MB", False, 1.1),
]
PARTITIONS = [Figure("time", "topic to lake: job, warm", "s", False, 1.2)]


class Load(NamedTuple):
    records: int
    partitions: int

    @property
    def work(self) -> Work:
        return Work(f"growth-{self.partitions}", "", self.records, SMALL._replace(name=f"small-{self.partitions}"))


def measure(load: Load, address: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as place:
        arguments = {"text": pipeline_text(load.work, address), "place": place, "jobs": 2}
        command = [sys.executable, "-m", "benchmarks.by_pipeline", json.dumps(arguments)]
        found = json.loads(process_tree.run(command, TIMEOUT_S).lines[-1])
    if found["rows"] != load.records:
        raise RuntimeError(f"{found['rows']} rows instead of {load.records}")
    return {"time": found["job 1"], "memory": found["driver_mb"]}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description="more records, more partitions")
    parser.add_argument("--rounds", type=int, default=3, help="how often all are measured (default: 3)")
    parser.add_argument("--quick", action="store_true", help="little work, one round: to see that all runs")
    options = parser.parse_args()
    most = QUICK if options.quick else FULL
    tenth, whole, scattered = loads = (Load(most // 10, FEW), Load(most, FEW), Load(most, MANY))
    machine, by_records, by_partitions = report.machine(), list[Round](), list[Round]()
    with (
        tempfile.TemporaryDirectory(prefix="barnabas-bench-") as scratch,
        BarnabasServer(Path(scratch) / "b") as server,
    ):
        for load in loads:
            fill([server.address], load.work.topic, SMALL, load.records, load.partitions)
        for number in range(1 if options.quick else options.rounds):
            print(f"growth, round {number + 1}", file=sys.stderr)
            found = {load: measure(load, server.address) for load in loads[:: -1 if number % 2 else 1]}
            by_records.append({BARNABAS: found[whole], TENTH: found[tenth]})
            by_partitions.append({BARNABAS: found[scattered], FEW_PARTITIONS: found[whole]})
    work = "quick" if options.quick else "full"
    is_short = False
    for name, figures, rounds, title, peer in (
        ("growth-records", RECORDS, by_records, f"{most:,} records and a tenth of them", TENTH),
        ("growth-partitions", PARTITIONS, by_partitions, f"{most:,} records in {MANY} partitions", FEW_PARTITIONS),
    ):
        report.show(figures, rounds, machine, work, title=title, peer=peer)
        print(f"written to {report.save(name, figures, rounds, machine, work, ROOT / '.benchmarks', peer=peer)}")
        is_short |= report.is_short(figures, rounds, peer)
    return int(is_short and not options.quick)


if __name__ == "__main__":
    sys.exit(main())
