"""How much slower than usual this machine is just now: a bound in seconds is meant for a usual one."""

from __future__ import annotations

import time

USUAL_S = 0.065
"""What the loop below takes on the processors that the bounds were measured on."""


def slowness() -> float:
    """1 on a machine as fast as usual, or faster; 2 on one that takes twice as long for the same work."""
    return max(1.0, min(_loop_s() for _ in range(5)) / USUAL_S)


def _loop_s() -> float:
    began = time.process_time()
    sum(number * number for number in range(1_000_000))
    return time.process_time() - began
