"""What every fetch of a consumer asks for, by Kafka's names."""

from __future__ import annotations

from barnabas.client.list_offsets import Isolation
from barnabas.core.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class FetchOptions:
    isolation_level: Isolation
    fetch_max_wait_ms: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    check_crcs: bool
    client_rack: str
    auto_offset_reset: str
    metadata_max_age_ms: int
    topics_may_go: bool = False
    """Whether a topic that is deleted is no matter for the caller: it asked for a pattern, not for that topic."""
