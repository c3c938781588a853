"""What a broker counts while it works: plain numbers, because the hot path pays for them.

Nothing here knows Prometheus; `metrics_endpoint` reads the numbers when somebody asks. The event loop owns them, so
work that runs in threads reports when it is back on the loop. What the server counts (bytes, connections) stays there.

    metrics.latencies(api_key, version).observe(seconds)     a response, or the end of a request without one
    metrics.error(api_key, error_code)                       an error of a response, or of one partition or topic inside
    metrics.fetched_bytes["consumer", "leader"] += size      records in a response, by reader and by role
    metrics.client_mistakes += 1                             a frame or request that could not be understood
    metrics.unhandled_errors += 1                            something failed for a reason of our own
    metrics.fsync(seconds)                                   one flush of a file to disk
    metrics.recovered(scanned_bytes, dropped_bytes, seconds) one log, brought back after an unclean stop
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from typing import NamedTuple

LATENCY_BOUNDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Upper bounds of the buckets in seconds, each included, as Prometheus has it; one more bucket has no bound."""


class Histogram:
    """How many durations fell into each bucket, and their sum."""

    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(LATENCY_BOUNDS) + 1)
        self.seconds = 0.0

    def observe(self, seconds: float) -> None:
        self.buckets[bisect_left(LATENCY_BOUNDS, seconds)] += 1
        self.seconds += seconds


class PartitionSample(NamedTuple):
    """One partition's log at the moment of the scrape."""

    topic: str
    partition: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int


class Metrics:
    __slots__ = (
        "client_mistakes",
        "dropped_bytes",
        "errors",
        "fetched_bytes",
        "fsyncs",
        "loop_lag",
        "recoveries",
        "requests",
        "scanned_bytes",
        "unhandled_errors",
    )

    def __init__(self) -> None:
        self.requests: dict[tuple[int, int], Histogram] = {}  # (API key, version) -> latencies
        self.errors: dict[tuple[int, int], int] = {}  # (API key, error code) -> count
        self.fetched_bytes: dict[tuple[str, str], int] = {  # (who reads, what this broker is to the partition) -> bytes
            ("consumer", "leader"): 0,
            ("consumer", "follower"): 0,
            ("replica", "leader"): 0,
        }
        self.client_mistakes = 0
        self.unhandled_errors = 0
        self.fsyncs = Histogram()
        self.recoveries = Histogram()
        self.scanned_bytes = 0
        self.dropped_bytes = 0
        self.loop_lag = Histogram()

    def latencies(self, api_key: int, version: int) -> Histogram:
        """Where the requests of one version of one API are counted."""
        return self.requests.setdefault((api_key, version), Histogram())

    def error(self, api_key: int, error_code: int) -> None:
        kind = (api_key, int(error_code))
        self.errors[kind] = self.errors.get(kind, 0) + 1

    def fsync(self, seconds: float) -> None:
        self.fsyncs.observe(seconds)

    def recovered(self, scanned_bytes: int, dropped_bytes: int, seconds: float) -> None:
        self.recoveries.observe(seconds)
        self.scanned_bytes += scanned_bytes
        self.dropped_bytes += dropped_bytes


class LoopProbe:
    """Measures by how much the event loop is late: a timer that notes how long after its time it was called.

    Whatever holds the loop for longer than the interval is seen; of a shorter stall, the part that the timer ran into.
    """

    __slots__ = ("_interval_s", "_lag", "_loop", "_timer")

    def __init__(self, lag: Histogram, loop: asyncio.AbstractEventLoop, interval_s: float = 0.1) -> None:
        self._lag = lag
        self._loop = loop
        self._interval_s = interval_s
        self._timer = loop.call_later(interval_s, self._tick, loop.time() + interval_s)

    def _tick(self, due: float) -> None:
        now = self._loop.time()
        self._lag.observe(max(0.0, now - due))
        self._timer = self._loop.call_later(self._interval_s, self._tick, now + self._interval_s)

    def close(self) -> None:
        self._timer.cancel()
