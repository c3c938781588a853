"""Replication at a bounded rate, so that moving replicas leaves the disks and the network to those who work.

A topic names the replicas whose copying is bounded, as `partition:broker` or `*` for all: those that lead in
`leader.replication.throttled.replicas`, those that follow in `follower.replication.throttled.replicas`. A broker has
one rate for each. Only copying by replicas that are not in sync is bounded and counted, or acknowledgements would wait
for it.
"""

from __future__ import annotations

from collections.abc import Callable

_BURST_SECONDS = 1.0
"""How much time that was not made use of may be made up for."""
_EVERYWHERE = "*"


def names(replicas: tuple[str, ...], partition: int, broker_id: int) -> bool:
    """Whether a topic's list of throttled replicas has this one."""
    return bool(replicas) and (_EVERYWHERE in replicas or f"{partition}:{broker_id}" in replicas)


class Throttle:
    """A rate in bytes a second, which may change at any time. What was sent is a debt that time pays off."""

    __slots__ = ("_debt_bytes", "_rate", "_settled_at")

    def __init__(self, rate: Callable[[], int]) -> None:
        self._rate = rate
        self._debt_bytes = 0.0
        self._settled_at = 0.0

    @property
    def share_bytes(self) -> int:
        """The most to send at a time."""
        return max(1, int(self._rate() * _BURST_SECONDS))

    def record(self, size_bytes: int, now: float) -> None:
        """So much was sent; `now` is in seconds of a clock that never goes back."""
        self._settle(now)
        self._debt_bytes += size_bytes

    def wait_seconds(self, now: float) -> float:
        """How long until more may be sent; 0 if that is now."""
        self._settle(now)
        return max(0.0, self._debt_bytes / max(1, self._rate()))

    def _settle(self, now: float) -> None:
        rate = max(1, self._rate())
        self._debt_bytes = max(self._debt_bytes - rate * (now - self._settled_at), -rate * _BURST_SECONDS)
        self._settled_at = now
