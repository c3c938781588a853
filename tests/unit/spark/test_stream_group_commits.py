"""A stream's offsets in its group: only what is new, and a group that does not answer is no reason to stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

import pytest

from barnabas.client.metadata import TopicPartition
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.spark import group_commits
from barnabas.spark.group_commits import GroupCommits

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
Offsets = Mapping[TopicPartition, int]


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


class Group:
    """Stands for the client, and for the coordinator behind it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.asked: list[Offsets] = []
        self.answer: Callable[[], Awaitable[None]] = self.accept

    async def accept(self) -> None:
        pass

    async def refuse(self) -> None:
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no access to group 'billing'")

    async def hang(self) -> None:
        await asyncio.Event().wait()

    async def alter(self, _: str, offsets: Offsets) -> None:
        self.asked.append(offsets)
        await self.answer()


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    monkeypatch.setattr(group_commits, "Offsets", lambda client: client)
    monkeypatch.setattr(group_commits, "_PATIENCE_S", 0.02)
    return Group()


@pytest.fixture
def commits(group: Group) -> GroupCommits:
    return GroupCommits(group, "billing")  # type: ignore[arg-type]


def test_only_offsets_that_have_changed_are_committed(group: Group, commits: GroupCommits) -> None:
    for offsets in ({FIRST: 1, SECOND: 1}, {FIRST: 1, SECOND: 1}, {FIRST: 1, SECOND: 2}):
        asyncio.run(commits.commit(offsets))

    assert group.asked == [{FIRST: 1, SECOND: 1}, {SECOND: 2}]


@pytest.mark.parametrize("problem", ["refuse", "hang"])
def test_a_group_that_fails_is_told_once_and_asked_again_after_a_pause(
    group: Group, commits: GroupCommits, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    group.answer = getattr(group, problem)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            asyncio.run(commits.commit({FIRST: 1}))
        assert len(group.asked) == 1, "not at every call"
        group.clock.now += 6
        asyncio.run(commits.commit({FIRST: 1}))
    assert len(group.asked) == 2
    assert len(caplog.records) == 1
    assert "'billing'" in caplog.text
    assert "the stream goes on" in caplog.text

    group.answer = group.accept
    group.clock.now += 6
    asyncio.run(commits.commit({FIRST: 3}))
    asyncio.run(commits.commit({FIRST: 3}))
    assert group.asked[2:] == [{FIRST: 3}]
