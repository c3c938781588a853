"""Figures of a measured load: how much, how fast, how late.

A latency counts from the moment when a record was due, not from when the program got round to it: a stall then shows in
every record that it kept waiting.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field

from barnabas.core.dataclass import dataclass

_PERCENTILES = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "p99_9": 99.9, "max": 100.0}


@dataclass(slots=True)
class Load:
    """What was measured; seconds are of the wall clock, bytes those of keys and values, a MB a million of them."""

    records: int = 0
    size_bytes: int = 0
    seconds: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)

    def rates(self) -> dict[str, object]:
        seconds = max(self.seconds, 1e-9)
        return {
            "records": self.records,
            "mb": round(self.size_bytes / 1e6, 3),
            "seconds": round(self.seconds, 3),
            "records_per_s": round(self.records / seconds),
            "mb_per_s": round(self.size_bytes / 1e6 / seconds, 3),
        }

    def latencies(self) -> dict[str, object]:
        """Nothing where none was taken."""
        ordered = sorted(self.latencies_ms)
        if not ordered:
            return {}
        found = {f"{name}_ms": round(percentile(ordered, percent), 3) for name, percent in _PERCENTILES.items()}
        return {"samples": len(ordered), **found}


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest of the values that so many percent do not exceed: one that was measured, never a mean of two."""
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]
