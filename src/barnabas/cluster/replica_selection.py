"""Which replica a consumer should read from: one in its own rack, if it has what the consumer asks for (KIP-392)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.cluster.image import Broker
    from barnabas.cluster.partition import Partition

NOBODY_ELSE = -1


def nearer_replica(partition: Partition, offset: int, rack: str, brokers: Mapping[int, Broker], listener: str) -> int:
    """The follower in the reader's rack that is furthest; NOBODY_ELSE if the leader is as near, or all are far away.

    Only in-sync replicas count: another one may fall back ever more, and its reader with it.
    """
    leader = brokers.get(partition.broker_id)
    in_sync = partition.in_sync
    if in_sync is None or leader is None or leader.rack == rack:
        return NOBODY_ELSE
    near = []
    for follower, state in in_sync.followers.items():
        broker = brokers.get(follower)
        if (
            broker is not None
            and broker.rack == rack
            and not broker.fenced
            and broker.endpoint(listener) is not None
            and follower in partition.isr
            and state.log_start_offset <= offset <= state.log_end_offset
        ):
            near.append((state.log_end_offset, state.caught_up_ms, follower))
    return max(near)[2] if near else NOBODY_ELSE
