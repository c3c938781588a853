"""What a run was promised, which says what counts as an anomaly in it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Expectations:
    synced_topics: Collection[str] = ()
    """They acknowledge only what would survive a power cut."""
    expiring_topics: Collection[str] = ()
    """They have a short retention: records go from their beginning by themselves."""
    safe_topics: Collection[str] = ()
    """They have so many in-sync replicas that no election of the run need be unclean."""
    idempotent_producers: Collection[str] = ()
    """What they send is there once and in its order. What is sent in a transaction always is."""
    hasty_producers: Collection[str] = ()
    """They are told of success before all in-sync replicas have their records, which then may be lost."""
    counting_groups: Collection[str] = ()
    """Their members go on where the group is, and commit each offset once."""
    isolated_writes: bool = False
    """No two transactions that write to the same partitions are open at once. Kafka lets the writes of open ones mingle
    as they come, so that only then their order may have no cycles."""
    late_s: float = 120.0
    """So long after a client has asked for something, and not been answered, it may still be carried out."""
    lag_s: float = inf
    """So long after its client has given it up, a commit may still be carried out, if `late_s` allows for it."""
    prompt_s: float = inf
    """An answer that takes longer may be to a second request; the first may still be carried out then."""


NOTHING_SPECIAL = Expectations()
