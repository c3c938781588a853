"""Who leads a partition when a broker goes or comes.

A leader comes from the in-sync replicas, the preferred one first, and must be neither fenced nor shutting down. The
last in-sync replica keeps its place when its broker goes: it alone is known to have everything, so the partition
waits for it, without a leader, rather than lose what was acknowledged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from barnabas.cluster.image import Image, Partition
from barnabas.cluster.records import NO_LEADER, NO_LEADER_CHANGE, PartitionChangeRecord


def elect(replicas: Collection[int], isr: Collection[int], may_lead: Collection[int]) -> int:
    return next((broker for broker in replicas if broker in isr and broker in may_lead), NO_LEADER)


def changes_when_broker_goes(image: Image, broker_id: int) -> Iterator[PartitionChangeRecord]:
    """Take the broker out of leaderships and, where another stays, out of the in-sync replicas."""
    may_lead = _may_lead(image) - {broker_id}
    for topic_id, number, partition in _partitions(image):
        if broker_id not in partition.isr:
            continue
        isr = tuple(replica for replica in partition.isr if replica != broker_id) or partition.isr
        leads = partition.leader == broker_id
        if not leads and isr == partition.isr:
            continue
        yield PartitionChangeRecord(
            partition_id=number,
            topic_id=topic_id,
            isr=None if isr == partition.isr else list(isr),
            leader=elect(partition.replicas, isr, may_lead) if leads else NO_LEADER_CHANGE,
        )


def changes_when_broker_comes(image: Image, broker_id: int) -> Iterator[PartitionChangeRecord]:
    """Give a leader to the partitions that wait for this broker."""
    may_lead = _may_lead(image) | {broker_id}
    for topic_id, number, partition in _partitions(image):
        if partition.leader == NO_LEADER and broker_id in partition.isr:
            leader = elect(partition.replicas, partition.isr, may_lead)
            yield PartitionChangeRecord(partition_id=number, topic_id=topic_id, leader=leader)


def leads_any(image: Image, broker_id: int) -> bool:
    return any(partition.leader == broker_id for _, _, partition in _partitions(image))


def _may_lead(image: Image) -> set[int]:
    return {broker.id for broker in image.brokers.values() if broker.may_lead}


def _partitions(image: Image) -> Iterator[tuple[bytes, int, Partition]]:
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions):
            yield topic.id, number, partition
