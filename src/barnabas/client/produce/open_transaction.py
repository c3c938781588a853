"""A transaction that its producer has left open, so that somebody else may end it: two phases over many producers.

Each producer delivers what it has and leaves its transaction open; whoever coordinates them decides, writes the
decision down, and ends them all (`admin.transactions.end_many`). Until then the records are safe and nobody who reads
what is committed sees them, but the clock of `transaction_timeout_ms` runs.
"""

from __future__ import annotations

from barnabas.core.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """All that is needed to end it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
