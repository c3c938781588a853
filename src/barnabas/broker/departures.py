"""What a broker asks the controller for when its replica of a partition is not to be relied on any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cluster.events import AlterPartition

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.cluster.image import Partition


def departure(broker: Broker, topic: str, index: int, partition: Partition) -> AlterPartition:
    """The partition's in-sync replicas without this broker, which may be none."""
    image = broker.metadata.image
    others = (member for member in partition.isr if member != broker.broker_id)
    return AlterPartition(
        broker.broker_id,
        broker.broker_epoch,
        image.topics[topic].id,
        index,
        partition.leader_epoch,
        partition.partition_epoch,
        tuple((member, image.brokers[member].epoch) for member in others),
        partition.leader_recovery_state,
    )
