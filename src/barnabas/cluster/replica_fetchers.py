"""Who copies what: a partition that another broker leads is handed to one of the fetchers for that broker.

A partition whose leader changes moves on to another fetcher; a fetcher that has nothing left to copy ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from barnabas.cluster.copy_session import FetchSettings, Key, key_of
from barnabas.cluster.replica_fetcher import ReplicaFetcher, Surroundings

if TYPE_CHECKING:
    from barnabas.cluster.partition import Partition


class ReplicaFetchers:
    """The fetchers of one broker: `fetchers_per_leader` for each broker that leads a partition of ours."""

    def __init__(self, around: Surroundings, settings: FetchSettings, fetchers_per_leader: Callable[[], int]) -> None:
        self._around = around
        self._settings = settings
        self._fetchers_per_leader = fetchers_per_leader
        self._fetchers: dict[tuple[int, int], tuple[ReplicaFetcher, asyncio.Task[None]]] = {}
        self._place: dict[Key, tuple[int, int]] = {}

    def share_out(self, partitions: Iterable[Partition]) -> None:
        """Hand what is copied now to as many fetchers as there are to be from now on."""
        for partition in partitions:
            if key_of(partition) in self._place:
                self.follow(partition)

    def follow(self, partition: Partition) -> None:
        """Copy the partition from the leader that it has now, which may be none, or this broker: then from nobody."""
        key = key_of(partition)
        place = (partition.leader, key[1] % self._fetchers_per_leader())
        if self._place.get(key, place) != place:
            self.drop(partition)
        if partition.leader >= 0 and not partition.is_leader:
            if place not in self._fetchers:
                fetcher = ReplicaFetcher(partition.leader, self._around, self._settings)
                self._fetchers[place] = (fetcher, asyncio.create_task(fetcher.run()))
            self._place[key] = place
            self._fetchers[place][0].add(partition)
        else:
            self.drop(partition)

    def drop(self, partition: Partition) -> None:
        place = self._place.pop(key_of(partition), None)
        if place is None or place not in self._fetchers:
            return  # a fetcher under which a disk has failed drops by itself, and may be gone when we hear of it
        fetcher, task = self._fetchers[place]
        fetcher.drop(key_of(partition))
        if fetcher.is_idle:
            del self._fetchers[place]
            task.cancel()

    async def close(self) -> None:
        tasks = [task for _, task in self._fetchers.values()]
        self._fetchers.clear()
        self._place.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
