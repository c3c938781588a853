"""How much of what is there goes into the next micro-batch: `max-` and `minOffsetsPerTrigger`.

Offsets are counted, not records: markers of transactions and gaps of compacted topics count too, as in Spark's own
source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

P = TypeVar("P")


def within(limit: int, starts: Mapping[P, int], ends: Mapping[P, int]) -> dict[P, int]:
    """The ends of a batch of at most `limit` offsets, shared out in proportion to what each partition has.

    A partition that has anything gets at least one, so that a large one starves nobody; where there are more such
    partitions than the limit, the batch has one of each. What ends before it starts is left as it is.
    """
    sizes = {partition: end - starts[partition] for partition, end in ends.items() if end > starts[partition]}
    total = sum(sizes.values())
    if total <= limit:
        return dict(ends)
    spare, rest = max(0, limit - len(sizes)), max(1, total - len(sizes))
    shares: dict[P, int] = {}
    given = seen = 0
    for partition, size in sizes.items():
        # Cut the spare by running sums: the parts are whole numbers, as close to proportion as can be, and add up.
        seen += size - 1
        upto = spare * seen // rest
        shares[partition] = 1 + upto - given
        given = upto
    return {
        partition: starts[partition] + shares[partition] if partition in shares else end
        for partition, end in ends.items()
    }


class Patience:
    """Lets a batch wait until enough has come in, or until the one before it is too long ago."""

    def __init__(self, min_offsets: int | None, max_delay_ms: int, monotonic: Callable[[], float]) -> None:
        self._min_offsets = min_offsets or 1
        self._max_delay_ms = max_delay_ms
        self._monotonic = monotonic
        self._last_batch: float | None = None

    def is_ready(self, available: int) -> bool:
        """Whether so many offsets are to be read now; the first ones of a run are."""
        if available <= 0:
            return False
        now = self._monotonic()
        is_due = self._last_batch is None or (now - self._last_batch) * 1000 >= self._max_delay_ms
        if is_due or available >= self._min_offsets:
            self._last_batch = now
            return True
        return False
