"""The same load into several places, taking turns in one session of Spark, with the CPU time of who has done it.

    python -m benchmarks.by_place '{"texts": {"hdfs": ..., "local": ...}, "scratch": ..., "rounds": 3}'

A text is a pipeline's file, in which ${JOB} is another number for each job. Every place is loaded once before the
rounds begin. Prints what each round took of each place as one line of JSON. CPU time is that of all processes of the
parent's, so that executors of a cluster count which the parent has started.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from barnabas.spark import worker_daemon
from barnabas.spark.pipeline.definition_file import parse_pipeline
from barnabas.spark.pipeline.runner import run_pipeline
from barnabas.spark.pipeline.session import spark_session
from barnabas.spark.pipeline.state import State

_KINDS = {
    "workers": ("python", worker_daemon.__name__),
    "spark": ("java", "org.apache.spark."),
    "hdfs": ("java", "org.apache.hadoop.hdfs.server."),
}
"""The program, and a word of the command line, of processes that count: Python's workers, Spark's JVMs, HDFS."""


def main(
    texts: Mapping[str, str],
    scratch: str,
    rounds: int,
    master: str = "local[2,4]",
    settings: Mapping[str, str] | None = None,
) -> list[dict[str, dict[str, float]]]:
    jobs = 0

    def load(text: str) -> dict[str, float]:
        nonlocal jobs
        jobs += 1
        pipeline = parse_pipeline(text, "pipeline.yaml", {"JOB": str(jobs)})
        before, began = _cpu_seconds(), time.perf_counter()
        run_pipeline(pipeline, spark, State(Path(scratch, f"state-{jobs}")), functions_in=Path(scratch))
        took, after = time.perf_counter() - began, _cpu_seconds()
        return {"seconds": took, **{kind: after[kind] - before[kind] for kind in _KINDS}}

    with spark_session("benchmark", master, settings or {}, Path(scratch, "session")) as spark:
        for text in texts.values():
            load(text)
        order = list(texts)
        return [
            {name: load(texts[name]) for name in (order[::-1] if number % 2 else order)} for number in range(rounds)
        ]


def _cpu_seconds() -> dict[str, float]:
    """Of each kind of process, those that have ended and were waited for by others of their kind included."""
    found = dict.fromkeys(_KINDS, 0.0)
    for process in psutil.Process(os.getppid()).children(recursive=True):
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            command, times = process.cmdline(), process.cpu_times()
            for kind, (program, word) in _KINDS.items():
                if command and program in command[0] and any(each.startswith(word) for each in command[1:]):
                    found[kind] += sum(times[:4] if kind == "workers" else times[:2])
    return found


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
