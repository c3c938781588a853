"""Invariant: a broker that leads a coordinator's partition never answers NOT_COORDINATOR for it.

FindCoordinator names a broker from the metadata, so a client may ask it before it has read that metadata, created the
partition or loaded the shard. Judged by the list in the store itself, whatever the broker knows of it: a refusal is
wrong if the broker led the partition, in one leader epoch, from the request to the refusal, and could have known.
"""

from __future__ import annotations

from typing import Any

from barnabas.broker.app import Broker
from barnabas.broker.coordinators import Coordinator
from barnabas.cluster.image import Image, Partition
from barnabas.coordinator.placement import partition_of
from barnabas.core.errors import ErrorCode, KafkaError
from tests.simulation.watched_metadata import WatchedMetadata
from tests.simulation.world import World


def watch_coordinators(world: World, broker: Broker, metadata: WatchedMetadata) -> None:
    """Report requests that the broker's coordinators refuse without reason."""
    for coordinator in (broker.groups, broker.transactions):
        _watch(world, broker, metadata, coordinator)


def _watch(world: World, broker: Broker, metadata: WatchedMetadata, coordinator: Coordinator[Any]) -> None:
    ready = coordinator.ready

    async def watched(key: str) -> Any:
        before = _partition_of(metadata.image, coordinator.topic, key)
        try:
            return await ready(key)
        except KafkaError as error:
            after = _partition_of(metadata.image, coordinator.topic, key)
            knows = not broker.metadata.trouble or _is_led(broker, broker.metadata.image, coordinator, key)
            if (
                error.code is ErrorCode.NOT_COORDINATOR
                and knows
                and _is_led(broker, metadata.image, coordinator, key)
                and before is not None
                and after is not None
                and (before.leader, before.leader_epoch) == (after.leader, after.leader_epoch)
            ):
                world.problems.append(f"wrong coordinator: broker {broker.broker_id} refused {key!r}, which it leads")
            raise

    coordinator.ready = watched  # type: ignore[method-assign]


def _is_led(broker: Broker, image: Image, coordinator: Coordinator[Any], key: str) -> bool:
    partition = _partition_of(image, coordinator.topic, key)
    return partition is not None and partition.leader == broker.broker_id


def _partition_of(image: Image, topic: str, key: str) -> Partition | None:
    found = image.topics.get(topic)
    return None if found is None else found.partitions[partition_of(key, len(found.partitions))]
