"""Who copies which partition."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from barnabas.cluster import replica_fetchers
from barnabas.cluster.copy_session import key_of
from barnabas.cluster.replica_fetchers import ReplicaFetchers

LEADER = 2


class Fetcher:
    def __init__(self, *_: object) -> None:
        self.keys: set[Any] = set()

    @property
    def is_idle(self) -> bool:
        return not self.keys

    def add(self, partition: Any) -> None:
        self.keys.add(key_of(partition))

    def drop(self, key: Any) -> None:
        self.keys.discard(key)

    async def run(self) -> None:
        await asyncio.Event().wait()


def test_a_partition_that_its_fetcher_has_dropped_can_be_the_last_to_be_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where a disk fails under one partition, and the others that lie on it are dropped before it."""
    monkeypatch.setattr(replica_fetchers, "ReplicaFetcher", Fetcher)

    async def story() -> None:
        fetchers = ReplicaFetchers(MagicMock(), MagicMock(), lambda: 1)
        failed, other = (_partition(topic_id) for topic_id in (b"a" * 16, b"b" * 16))
        fetchers.follow(failed)
        fetchers.follow(other)
        ((fetcher, task),) = fetchers._fetchers.values()
        fetcher.drop(key_of(failed))
        fetchers.drop(other)
        fetchers.drop(failed)
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        assert not fetchers._fetchers

    asyncio.run(story())


def _partition(topic_id: bytes) -> Any:
    return SimpleNamespace(log=SimpleNamespace(topic_id=topic_id, partition=0), leader=LEADER, is_leader=False)
