"""Records through Barnabas and through Apache Kafka, in one run on one machine: `make bench`.

Each broker is warmed up and put under the same loads; see `comparison` for how they take turns.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import psutil

from benchmarks import loads
from benchmarks.comparison import compare, running
from benchmarks.report import Figure
from tests.peers import Broker, answers_metadata

CONNECTIONS = 16
LOAD_TIMEOUT = 120.0


class Sizes(NamedTuple):
    """How much work a round is."""

    records_1k: int
    records_100b: int
    request_seconds: float


FULL = Sizes(records_1k=1_000_000, records_100b=3_000_000, request_seconds=5)
QUICK = Sizes(records_1k=200_000, records_100b=500_000, request_seconds=2)

FIGURES = (
    Figure("produce_1k", "produce 1 KB, acks=all", "MB/s", True, 2.0),
    Figure("consume_1k", "consume 1 KB", "MB/s", True, 1.5),
    Figure("produce_100b", "produce 100 B, acks=all", "records/s", True, 1.0),
    Figure("requests", "one-record requests, 16 connections", "1/s", True, 1.5),
    Figure("requests_p50", "  their latency, p50", "ms", False, None),
    Figure("requests_p99", "  their latency, p99", "ms", False, 0.7),
    Figure("cpu", "broker CPU to take in and give out 1 KB records", "s/GB", False, 0.5),
    Figure("start", "start to first answered Metadata request", "s", False, 0.2),
    Figure("memory_idle", "resident memory, idle", "MB", False, 0.2),
    Figure("memory_loaded", "resident memory, after the load", "MB", False, 0.2),
)


def measure(name: str, sizes: Sizes) -> dict[str, float]:
    """Start a broker, load it, stop it; its figures."""
    with running(name) as server:
        assert answers_metadata(server.address)
        start = time.monotonic() - server.spawned_at
        return {"start": start, "format": getattr(server, "format_seconds", 0.0)} | _load(server, sizes)


def _load(server: Broker, sizes: Sizes) -> dict[str, float]:
    address, process = server.address, psutil.Process(server.pid)

    def run(load: str, **arguments: str | float) -> dict[str, float]:
        return loads.run(loads.__name__, load, LOAD_TIMEOUT, address=address, **arguments)

    time.sleep(1)
    memory_idle = _memory(process)
    for topic, partitions in (("warm-up", 1), ("records-1k", 1), ("records-100b", 1), ("requests", CONNECTIONS)):
        loads.create_topic(address, topic, partitions)
    one_by_one = {"connections": CONNECTIONS, "value_bytes": 100}
    run("produce", topic="warm-up", count=sizes.records_1k // 4, value_bytes=1024)
    run("consume", topic="warm-up", count=sizes.records_1k // 4, value_bytes=1024)
    run("requests", topic="requests", seconds=sizes.request_seconds / 4, **one_by_one)

    cpu_before = _cpu_seconds(process)
    produced = run("produce", topic="records-1k", count=sizes.records_1k, value_bytes=1024)
    consumed = run("consume", topic="records-1k", count=sizes.records_1k, value_bytes=1024)
    cpu = _cpu_seconds(process) - cpu_before
    small = run("produce", topic="records-100b", count=sizes.records_100b, value_bytes=100)
    answered = run("requests", topic="requests", seconds=sizes.request_seconds, **one_by_one)
    return {
        "produce_1k": produced["mb_per_s"],
        "consume_1k": consumed["mb_per_s"],
        "produce_100b": small["records_per_s"],
        "requests": answered["requests_per_s"],
        "requests_p50": answered["p50_ms"],
        "requests_p99": answered["p99_ms"],
        "cpu": cpu / (sizes.records_1k * 1024 / 1e9),
        "memory_idle": memory_idle,
        "memory_loaded": _memory(process),
    }


def _processes(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def _memory(process: psutil.Process) -> float:
    """Megabytes resident in a broker and the processes that it started."""
    return sum(each.memory_info().rss for each in _processes(process)) / 1e6


def _cpu_seconds(process: psutil.Process) -> float:
    times = [each.cpu_times() for each in _processes(process)]
    return sum(each.user + each.system for each in times)


if __name__ == "__main__":
    compare("broker", FIGURES, measure, FULL, QUICK)
