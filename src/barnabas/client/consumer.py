"""The consumer, by assignment: the caller chooses partitions and positions; each partition's records come in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

from barnabas.client.client import Client
from barnabas.client.fetcher import Fetched, Fetcher, FetchOptions
from barnabas.client.list_offsets import Isolation, resolve_offsets
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import End, OffsetSpec


class Consumer:
    """Options are Kafka's in snake case. Owned by the event loop of its client."""

    def __init__(
        self,
        client: Client,
        *,
        isolation_level: Isolation = Isolation.READ_UNCOMMITTED,
        fetch_max_wait_ms: int = 500,
        fetch_min_bytes: int = 1,
        fetch_max_bytes: int = 50 << 20,
        max_partition_fetch_bytes: int = 1 << 20,
    ) -> None:
        self._client = client
        self._options = FetchOptions(
            isolation_level, fetch_max_wait_ms, fetch_min_bytes, fetch_max_bytes, max_partition_fetch_bytes
        )
        self._fetcher = Fetcher(client, self._options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._fetcher.close()

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions and no others, each from an offset."""
        self._fetcher.positions = dict(positions)

    async def assign_at(self, partitions: Iterable[TopicPartition], place: OffsetSpec) -> None:
        """Read these partitions and no others, each from a place such as `Beginning()` or `Last(10)`."""
        self.assign(await resolve_offsets(self._client, partitions, place, self._options.isolation_level))

    def unassign(self, partition: TopicPartition) -> None:
        self._fetcher.positions.pop(partition, None)

    def assignment(self) -> dict[TopicPartition, int]:
        """Each assigned partition with the offset of the record that comes next."""
        return dict(self._fetcher.positions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        if partition not in self._fetcher.positions:
            raise ValueError(f"{partition} is not assigned to this consumer")
        self._fetcher.positions[partition] = offset

    async def end_offsets(self) -> dict[TopicPartition, int]:
        """Where each assigned partition ends now, as far as this consumer may read."""
        return await resolve_offsets(self._client, self._fetcher.positions, End(), self._options.isolation_level)

    async def poll(self, timeout_ms: int = 500) -> list[Fetched]:
        """Records that have come in, by partition. A cancelled call loses nothing."""
        return await self._fetcher.fetch(timeout_ms)
