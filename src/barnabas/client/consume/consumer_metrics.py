"""How a consumer is doing, in plain values."""

from __future__ import annotations

from barnabas.core.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ConsumerMetrics:
    assigned_partitions: int
    fetches: int
    """Answers of brokers since the consumer was entered."""
    fetched_bytes: int
    buffered_bytes: int
    """Read ahead, and not handed out yet."""
