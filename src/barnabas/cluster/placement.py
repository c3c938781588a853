"""On which brokers the replicas of a topic go.

Partition i is led by broker (start + i) mod n of the ring, and its replica j sits j places further on. Each time the
leaders have gone round once, the others shift by one more place, so that the partitions of a broker that fails do not
all fall to its one neighbour. The start is random, so that the first partitions of many topics do not all meet.

With racks, the ring takes the racks in turns, and a replica is passed on along the ring until it finds a rack that the
partition is not in yet, while there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from random import Random


def ring(racks: Mapping[int, str | None]) -> list[int]:
    """The broker ids in the order in which leaders go round: by id, or, if all have racks, racks in turns."""
    if any(rack is None for rack in racks.values()):
        return sorted(racks)
    by_rack: dict[str | None, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    turns = zip_longest(*(by_rack[rack] for rack in sorted(by_rack, key=str)))
    return [broker for turn in turns for broker in turn if broker is not None]


def place(
    racks: Mapping[int, str | None],
    partitions: range,
    replication_factor: int,
    rng: Random,
    first_leader: int | None = None,
) -> list[list[int]]:
    """Replicas for each partition, the preferred leader first. There must be at least `replication_factor` brokers.

    `first_leader` is the broker that partition 0 prefers, when the topic is there already and only grows.
    """
    brokers = ring(racks)
    start = rng.randrange(len(brokers))
    if first_leader is not None and first_leader in racks:
        start = brokers.index(first_leader)
    rack_of = racks if all(rack is not None for rack in racks.values()) else {broker: str(broker) for broker in racks}
    return [_replicas(brokers, rack_of, start + i, i, replication_factor) for i in partitions]


def _replicas(
    brokers: Sequence[int],
    rack_of: Mapping[int, str | None],
    position: int,
    partition: int,
    replication_factor: int,
) -> list[int]:
    count = len(brokers)
    leader = brokers[position % count]
    if replication_factor == 1:
        return [leader]
    shift = partition // count % (count - 1)
    # Everybody but the leader, beginning with the one that the shift names.
    others = [brokers[(position + 1 + (shift + j) % (count - 1)) % count] for j in range(count - 1)]
    replicas = [leader]
    used = {rack_of[leader]}
    while len(replicas) < replication_factor:
        chosen = next((broker for broker in others if rack_of[broker] not in used), None)
        if chosen is None:  # every rack has one: begin again
            used.clear()
            continue
        others.remove(chosen)
        replicas.append(chosen)
        used.add(rack_of[chosen])
    return replicas
