"""What a client believes of what brokers tell it about the cluster."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from barnabas.client.connections import Address
from barnabas.client.metadata import Metadata, TopicPartition
from barnabas.wire.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

FIRST_ID, SECOND_ID = bytes([1] * 16), bytes([2] * 16)
Leader = tuple[int, int]
"""A broker and its leader epoch."""


def told(*leaders: Leader, topic_id: bytes = FIRST_ID) -> MetadataResponse:
    partitions = [
        MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epoch)
        for index, (leader, epoch) in enumerate(leaders)
    ]
    brokers = [MetadataResponseBroker(number, f"host{number}", 9092, None) for number in (1, 2, 3)]
    return MetadataResponse(
        brokers=brokers, topics=[MetadataResponseTopic(name="t", topic_id=topic_id, partitions=partitions)]
    )


def believed(*answers: MetadataResponse) -> list[Leader]:
    """The leaders of the topic after these answers; between them it is forgotten, as after an error."""

    class Connections:
        async def request(self, address: Address, message: Any, **_: object) -> MetadataResponse:
            return coming.pop(0)

    async def work() -> list[Leader]:
        connections: Any = Connections()
        metadata = Metadata(connections, [Address("host1", 9092)], Random(1))
        for _ in answers:
            metadata.forget(["t"])
            await metadata.refresh(["t"])
        partitions = range(len(metadata.cluster.topics["t"].partitions))
        found = [TopicPartition("t", index) for index in partitions]
        return [((await metadata.leader_of(each)).node_id, metadata.leader_epoch(each)) for each in found]

    coming = list(answers)
    return asyncio.run(work())


def test_the_latest_leader_is_believed() -> None:
    assert believed(told((1, 0), (2, 0)), told((2, 1), (2, 0))) == [(2, 1), (2, 0)]


def test_a_leader_that_another_has_followed_is_not_believed() -> None:
    """A broker that was frozen tells of itself; asked for records, it would say that there are none."""
    assert believed(told((1, 4), (2, 7)), told((3, 3), (3, 8))) == [(1, 4), (3, 8)]


def test_a_partition_that_a_broker_does_not_know_of_yet_is_still_there() -> None:
    assert believed(told((1, 4), (2, 7)), told((1, 4))) == [(1, 4), (2, 7)]


def test_of_a_topic_that_was_made_anew_nothing_is_known() -> None:
    assert believed(told((1, 4), (2, 7)), told((3, 0), topic_id=SECOND_ID)) == [(3, 0)]
