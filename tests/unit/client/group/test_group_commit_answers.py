"""What a commit makes of the coordinator's answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.client.client import Client
from barnabas.client.errors import CommitFailed
from barnabas.client.group.commits import Commits, Standing
from barnabas.client.group.values import GroupMetadata, OffsetAndMetadata
from barnabas.client.metadata import ClusterInfo, TopicInfo, TopicPartition
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

ORDERS_ID = b"orders".ljust(16, b"\0")
FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Clock:
    """Time passes when somebody looks at it."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 0.1
        return self.now


class Coordinator:
    """Answers each commit with the next codes, by partition."""

    def __init__(self, answers: Iterator[dict[int, ErrorCode]]) -> None:
        self._answers = answers
        self.asked: list[OffsetCommitRequest] = []

    async def ask(self, request: OffsetCommitRequest, *, highest: int | None) -> OffsetCommitResponse:
        self.asked.append(request)
        numbers = [each.partition_index for topic in request.topics for each in topic.partitions]
        codes = next(self._answers)
        partitions = [OffsetCommitResponsePartition(number, codes.get(number, 0)) for number in numbers]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic("", ORDERS_ID, partitions)])

    def check(self, code: int) -> None:
        if code == ErrorCode.NOT_COORDINATOR:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)


class Game:
    def __init__(self, *answers: dict[int, ErrorCode], epochs: tuple[int, ...] = (1,)) -> None:
        self._epochs = epochs
        self.owned: frozenset[TopicPartition] | None = frozenset([FIRST, SECOND])
        self.outside = ""
        self.doubts = 0
        self.coordinator = Coordinator(iter(answers))
        cluster = ClusterInfo(topics={"orders": TopicInfo("orders", ORDERS_ID, False, ())})
        metadata = SimpleNamespace(cluster=cluster, forget=lambda _: None)
        client: Any = SimpleNamespace(
            clock=Clock(), backoff_seconds=lambda _: 0.0, retry_timeout_ms=5000, metadata=metadata
        )
        self.commits = Commits(cast(Client, client), "g", self.standing, self.doubt)
        self.commits._coordinator = self.coordinator  # type: ignore[assignment]

    def standing(self) -> Standing:
        """Each attempt so far has moved the member's epoch on, as far as there are epochs."""
        epoch = self._epochs[min(len(self.coordinator.asked), len(self._epochs) - 1)]
        return Standing(GroupMetadata("g", "me", epoch), self.outside, self.owned)

    def doubt(self) -> None:
        self.doubts += 1

    def commits_both(self) -> list[OffsetCommitRequest]:
        asyncio.run(self.commits.commit({FIRST: OffsetAndMetadata(3), SECOND: OffsetAndMetadata(4)}))
        return self.coordinator.asked


def test_only_what_was_not_taken_is_sent_again_after_the_coordinator_moved() -> None:
    first, again = Game({1: ErrorCode.UNKNOWN_TOPIC_ID}, {}).commits_both()
    assert [each.partition_index for each in first.topics[0].partitions] == [0, 1]
    assert [each.partition_index for each in again.topics[0].partitions] == [1]
    assert len(Game({0: ErrorCode.NOT_COORDINATOR}, {}).commits_both()) == 2


@pytest.mark.parametrize("code", [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.REBALANCE_IN_PROGRESS])
def test_a_commit_in_a_rebalance_is_sent_again_under_the_new_epoch(code: ErrorCode) -> None:
    both = {0: code, 1: code}
    game = Game(both, both, {}, epochs=(1, 1, 2))
    assert [request.generation_id_or_member_epoch for request in game.commits_both()] == [1, 1, 2]
    assert game.doubts


@pytest.mark.parametrize(
    "code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH]
)
def test_a_member_that_was_left_behind_is_told_so_and_asks_its_group(code: ErrorCode) -> None:
    game = Game({0: code, 1: code})
    with pytest.raises(CommitFailed, match=r"gone on without the member; .* joins again") as caught:
        game.commits_both()
    assert (caught.value.code, caught.value.retriable) == (code, False)
    assert game.doubts


def test_an_old_generation_is_no_failure_once_the_member_has_a_new_one() -> None:
    both = {0: ErrorCode.ILLEGAL_GENERATION, 1: ErrorCode.ILLEGAL_GENERATION}
    assert len(Game(both, {}, epochs=(1, 2)).commits_both()) == 2


def test_what_the_group_took_away_meanwhile_is_not_committed() -> None:
    both = {0: ErrorCode.REBALANCE_IN_PROGRESS, 1: ErrorCode.REBALANCE_IN_PROGRESS}
    game = Game(both, {}, epochs=(1, 2))
    game.owned = frozenset([FIRST])
    with pytest.raises(CommitFailed, match="took orders-1 away"):
        game.commits_both()


def test_who_is_outside_of_the_group_does_not_even_ask() -> None:
    game = Game()
    game.outside = "the caller was away"
    with pytest.raises(CommitFailed, match="the caller was away"):
        game.commits_both()
    assert game.coordinator.asked == []


@pytest.mark.parametrize(
    "code",
    [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.FENCED_INSTANCE_ID],
)
def test_other_refusals_are_passed_on(code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        Game({0: code}).commits_both()
    assert caught.value.code == code
    assert not isinstance(caught.value, CommitFailed)


def test_a_rebalance_that_does_not_end_ends_the_commit() -> None:
    codes = dict.fromkeys((0, 1), ErrorCode.REBALANCE_IN_PROGRESS)
    with pytest.raises(CommitFailed, match="still rebalances after 5000 ms; go on reading") as caught:
        Game(*[codes] * 100).commits_both()
    assert caught.value.code == ErrorCode.REBALANCE_IN_PROGRESS


def test_later_commits_wait_for_earlier_ones() -> None:
    codes = dict.fromkeys((0, 1), ErrorCode.REBALANCE_IN_PROGRESS)
    game = Game(codes, {}, {})

    async def both() -> None:
        await asyncio.gather(*(game.commits.commit({FIRST: OffsetAndMetadata(offset)}) for offset in (1, 2)))

    asyncio.run(both())
    offsets = [request.topics[0].partitions[0].committed_offset for request in game.coordinator.asked]
    assert offsets == [1, 1, 2]


def test_a_generation_that_is_over_again_and_again_ends_the_commit_as_left_behind() -> None:
    codes = dict.fromkeys((0, 1), ErrorCode.ILLEGAL_GENERATION)
    with pytest.raises(CommitFailed, match="gone on without the member"):
        Game(*[codes] * 100, epochs=tuple(range(100))).commits_both()
