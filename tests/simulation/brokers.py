"""The brokers as a simulated client finds them: who leads what is learnt from whichever answers.

A client asks for the metadata when it does not know a leader, or was told, or has to suspect, that what it knows has
become wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

from barnabas.core.errors import ErrorCode
from barnabas.core.seams import Network
from barnabas.wire.messages.k03_metadata import MetadataRequest
from tests.checker.history import TopicPartition
from tests.simulation.client import Client

RETRY_S = 0.5
METADATA_VERSION = 12

LifeOf = Callable[[TopicPartition], int]
"""The life that a partition is in now (see `history`)."""


class UnexpectedError(AssertionError):
    """An error code that no fault explains."""


def check_retriable(what: str, *errors: int) -> None:
    for error in map(ErrorCode, errors):
        if error != ErrorCode.NONE and not error.retriable:
            raise UnexpectedError(f"{what} was answered with {error.name}")


class Brokers:
    """One client's connections to all of them, made when they are needed."""

    def __init__(self, network: Network, addresses: Mapping[int, tuple[str, int]], life_of: LifeOf) -> None:
        self.life_of = life_of
        self.clients = {broker_id: Client(network, *address) for broker_id, address in addresses.items()}
        self._order = list(self.clients)  # whom to ask first
        self._leaders: dict[TopicPartition, int] = {}
        self._replicas: dict[TopicPartition, list[int]] = {}

    async def request(self, message: Any, version: int) -> Any:
        """The response of any broker; an OSError if the one whose turn it is gives none."""
        try:
            return await self.clients[self._order[0]].request(message, version)
        except OSError:
            self.turn()
            raise

    def turn(self) -> None:
        """Let the next broker be asked, because this one is of no help."""
        self._order.append(self._order.pop(0))

    async def leader(self, partition: TopicPartition) -> Client:
        """The leader, as soon as there is one."""
        while partition not in self._leaders:
            await self.look()
            if partition not in self._leaders:
                self.turn()
                await asyncio.sleep(RETRY_S)
        return self.clients[self._leaders[partition]]

    async def look(self) -> None:
        """Ask once who leads, if anybody answers."""
        try:
            response = await self.request(MetadataRequest(None), METADATA_VERSION)
        except OSError:
            return
        found = [
            (TopicPartition(topic.name, partition.partition_index), partition)
            for topic in response.topics
            for partition in topic.partitions
        ]
        self._leaders = {key: partition.leader_id for key, partition in found if partition.leader_id in self.clients}
        self._replicas = {key: partition.replica_nodes for key, partition in found}

    def forget(self, partition: TopicPartition) -> None:
        """Its leader was another one, or gave no answer."""
        self._leaders.pop(partition, None)

    def led_by(self, broker_id: int, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        return [partition for partition in partitions if self._leaders.get(partition) == broker_id]

    def hosted_by(self, broker_id: int, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """The partitions that a broker leads or follows."""
        return [partition for partition in partitions if broker_id in self._replicas.get(partition, ())]

    def are_known(self, partitions: Collection[TopicPartition]) -> bool:
        return all(partition in self._leaders for partition in partitions)

    def close(self) -> None:
        for client in self.clients.values():
            client.close()
