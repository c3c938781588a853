"""What the clients' loads have in common; each client has a module of loads, and each load is a process of its own.

A load warms up, says `begin`, works, and prints its figures: whoever started it can so look at the broker's CPU at both
moments. Every side gets the same settings, below. Only the standard library is imported here, because our own client
runs in the interpreter of a release.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

BATCH_BYTES = 1_000_000
LINGER_MS = 5
BUFFER_BYTES = 256 << 20
FETCH_BYTES = 8 << 20
LIST_SIZE = 10_000
LATE_SECONDS = 0.005
LONGEST_SECONDS = 120

Figures = dict[str, float]


class Work(NamedTuple):
    """`records` of `value_bytes` after `warm_up` others; for a latency, at `rate` a second."""

    address: str
    topic: str
    records: int
    warm_up: int
    value_bytes: int
    rate: int

    @property
    def value(self) -> bytes:
        return b"x" * self.value_bytes


class Stopwatch:
    """Started when the warm-up is over."""

    def __init__(self) -> None:
        print("begin", flush=True)
        self._cpu_started = time.process_time()
        self._started = time.perf_counter()

    def figures(self, count: int) -> Figures:
        """Rates of the whole, with the CPU seconds of all threads of this process."""
        seconds = time.perf_counter() - self._started
        return {"records_per_s": count / seconds, "seconds": seconds, "cpu_s": time.process_time() - self._cpu_started}


def expect(count: int, expected: int) -> None:
    if count != expected:
        raise RuntimeError(f"{count} records instead of {expected}")


def began(due: float, now: float) -> float:
    """When a record's latency begins: now, as timers count in milliseconds, but a stall of this process counts."""
    return due if now - due > LATE_SECONDS else now


def p99_ms(latencies: list[float]) -> float:
    latencies.sort()
    return latencies[len(latencies) * 99 // 100] * 1e3


def run(loads: Mapping[str, Callable[[Work], Figures]]) -> None:
    """The main program of a module of loads; what hangs is ended by the alarm."""
    signal.alarm(LONGEST_SECONDS)
    print(json.dumps(loads[sys.argv[1]](Work(**json.loads(sys.argv[2])))), flush=True)
