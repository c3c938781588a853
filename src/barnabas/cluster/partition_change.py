"""What becomes of a partition when something about it changes, in Kafka's terms (KIP-966).

Whatever is wanted (other in-sync replicas, other replicas, an election), the same four steps follow. A reassignment
is completed when its new replicas are in sync. Whoever leaves the in-sync replicas while fewer than
`min.insync.replicas` are left stays *eligible*: the watermark stands still from then on, so this replica misses
nothing that was acknowledged. A leader is elected, if the one that is there cannot go on. And the leader epoch rises
with a new leader, or when a replica goes that might still take itself for one.

A leader comes from the in-sync replicas, and from the eligible ones when nobody is in sync. When nobody is eligible
either, because all have restarted uncleanly, the operator decides: the partition has no leader until unclean elections
are allowed, or one is asked for. It may lose acknowledged records, so it is told of; the last known leader is the best
choice then, and a replica that is being added the worst. A partition that never had but one replica has no better one
to wait for, so that one leads again in any case.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from enum import Enum, auto
from typing import Any, NamedTuple

from barnabas.cluster.image import Partition
from barnabas.cluster.records import NO_LEADER, PartitionChangeRecord

RECOVERED = 0
RECOVERING = 1

_LISTS = (
    "replicas",
    "isr",
    "adding_replicas",
    "removing_replicas",
    "directories",
    "eligible_leader_replicas",
    "last_known_elr",
)


class Rules(NamedTuple):
    """What a topic's configuration says: `min.insync.replicas` and `unclean.leader.election.enable`."""

    min_isr: int
    unclean: bool


class Election(Enum):
    """Keep the leader that can go on; prefer the first replica; or take any that lives, if nobody else can lead."""

    IF_NEEDED = auto()
    PREFERRED = auto()
    UNCLEAN = auto()


class Settled(NamedTuple):
    partition: Partition
    is_unclean: bool


def settle(
    old: Partition,
    wanted: Partition,
    rules: Rules,
    may_lead: Collection[int],
    unclean_restart: int | None = None,
    election: Election = Election.IF_NEEDED,
) -> Settled:
    """The partition after a change of `old` into what is `wanted`; after an `unclean_restart` a broker is not eligible.

    It has the partition epoch that comes with the record, if there is one: `change_record` says whether.
    """
    new = _complete_reassignment(wanted)
    min_isr = min(rules.min_isr, len(new.replicas))
    eligible = _eligible(old, new, min_isr, unclean_restart)
    leader, is_unclean = _elect(new, eligible, rules.unclean or election is Election.UNCLEAN, may_lead, election)
    isr, recovery = new.isr, new.leader_recovery_state
    if is_unclean:
        isr, eligible, recovery = (leader,), (), RECOVERING
    elif leader in eligible:
        isr = (leader,)
        eligible = tuple(replica for replica in eligible if replica != leader) if min_isr > 1 else ()
    last_known: tuple[int, ...] = ()
    if leader == NO_LEADER:
        last_known = tuple(b for b in new.last_known_elr or (old.leader,) if b in new.replicas)
    is_new = leader != old.leader or not set(old.replicas) <= set(new.replicas)
    settled = replace(
        new,
        isr=isr,
        leader=leader,
        leader_epoch=old.leader_epoch + is_new,
        partition_epoch=old.partition_epoch + 1,
        leader_recovery_state=recovery,
        eligible_leader_replicas=eligible,
        last_known_elr=last_known,
    )
    return Settled(settled, is_unclean)


def change_record(topic_id: bytes, number: int, old: Partition, new: Partition) -> PartitionChangeRecord | None:
    """The record that leads from one to the other, or None if nothing differs but the partition epoch."""
    fields: dict[str, Any] = {
        name: list(getattr(new, name)) for name in _LISTS if getattr(new, name) != getattr(old, name)
    }
    record = PartitionChangeRecord(partition_id=number, topic_id=topic_id, **fields)
    if new.leader_epoch != old.leader_epoch:
        record.leader = new.leader
    elif not fields and new.leader_recovery_state == old.leader_recovery_state:
        return None
    if new.leader_recovery_state != old.leader_recovery_state:
        record.leader_recovery_state = new.leader_recovery_state
    return record


def _complete_reassignment(partition: Partition) -> Partition:
    """Without the replicas to be removed, once those to be added are in sync; all, if they become fewer."""
    adding, removing = partition.adding_replicas, partition.removing_replicas
    if not adding and not removing:
        return partition
    isr = tuple(replica for replica in partition.isr if replica not in removing)
    kept = [number for number, replica in enumerate(partition.replicas) if replica not in removing]
    replicas = tuple(partition.replicas[number] for number in kept)
    awaited = adding if len(adding) >= len(removing) else replicas
    if not isr or not set(awaited) <= set(isr):
        return partition
    return replace(
        partition,
        replicas=replicas,
        isr=isr,
        adding_replicas=(),
        removing_replicas=(),
        directories=tuple(partition.directories[number] for number in kept),
    )


def _eligible(old: Partition, new: Partition, min_isr: int, unclean_restart: int | None) -> tuple[int, ...]:
    if len(new.isr) >= min_isr:
        return ()
    had_all = {*old.isr, *old.eligible_leader_replicas} - {*new.isr, unclean_restart}
    return tuple(replica for replica in new.replicas if replica in had_all)


def _elect(
    partition: Partition, eligible: tuple[int, ...], any_replica: bool, may_lead: Collection[int], election: Election
) -> tuple[int, bool]:
    """Who leads, and whether acknowledged records may be lost by it."""
    complete = partition.isr or eligible
    candidates = [replica for replica in partition.replicas if replica in complete and replica in may_lead]
    if candidates:
        keeps = partition.leader in candidates
        if election is Election.PREFERRED:
            keeps = keeps and candidates[0] != partition.replicas[0]
        return partition.leader if keeps else candidates[0], False
    adding = partition.adding_replicas
    is_hopeless = not complete and len(partition.replicas) - len(adding) == 1
    if not any_replica and not is_hopeless:
        return NO_LEADER, False
    alive = [
        replica for replica in partition.replicas if replica in may_lead and (any_replica or replica not in adding)
    ]
    alive.sort(key=lambda replica: (replica in adding, replica not in partition.last_known_elr))
    return (alive[0], True) if alive else (NO_LEADER, False)
