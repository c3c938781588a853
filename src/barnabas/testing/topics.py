"""What a test asks of its cluster while some brokers may be out of order: only those that can answer are asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from barnabas.client.client import Client, connect
from barnabas.client.errors import refused
from barnabas.client.metadata import NO_LEADER, TopicPartition
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.sync.portal import portal
from barnabas.wire.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BROKER_DEFAULT = -1
_TIMEOUT_MS = 30_000


def create(
    addresses: Sequence[str], name: str, partitions: int, replication_factor: int | None, config: Mapping[str, str]
) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=BROKER_DEFAULT if replication_factor is None else replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in config.items()],
    )

    async def work() -> None:
        async with _client(addresses) as client:
            response = await client.metadata.ask_any(CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS))
            result = response.topics[0]
            if result.error_code:
                raise refused(result.error_code, f"cannot create topic {name!r}", result.error_message)
        await _with_leaders(addresses, name)

    portal().run(work())


def leader_of(addresses: Sequence[str], topic: str, partition: int) -> int:
    async def work() -> int:
        async with _client(addresses) as client:
            return (await client.metadata.leader_of(TopicPartition(topic, partition))).node_id

    return portal().run(work())


def controller(addresses: Sequence[str]) -> int:
    async def work() -> int:
        async with _client(addresses) as client:
            await client.metadata.refresh([])
            return client.metadata.cluster.controller_id

    return portal().run(work())


async def _with_leaders(addresses: Sequence[str], name: str) -> None:
    async def attempt() -> None:
        async with _client(addresses) as client:
            topic = await client.metadata.topic(name)
        if any(partition.leader == NO_LEADER for partition in topic.partitions):
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name!r} has partitions without a leader")

    async with _client(addresses) as client:
        await client.retrying(attempt)


@asynccontextmanager
async def _client(addresses: Sequence[str]) -> AsyncIterator[Client]:
    """Not entered: it knows these addresses alone until it has asked once."""
    client = connect(",".join(addresses), client_id="barnabas-testing")
    try:
        yield client
    finally:
        await client.close()
