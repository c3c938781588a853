"""Committed offsets of a group: how far it has come, stored by its coordinator.

A member commits under its identity, so that one that the group has left behind cannot overwrite what its successor has
committed. While the group rebalances, or the member's epoch moves on, a commit waits and is tried again under the new
identity, as long as its partitions are still the member's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from barnabas.client.client import Client
from barnabas.client.errors import CommitFailed, refused
from barnabas.client.group.coordinator import GroupCoordinator
from barnabas.client.group.values import GroupMetadata, OffsetAndMetadata
from barnabas.client.metadata import TopicPartition, by_topic
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from barnabas.wire.schema import ZERO_UUID

_BY_NAME = 9
"""The last version of OffsetCommit and OffsetFetch that names topics; the next one knows them by their ids."""
_NO_OFFSET = -1
_NOT_YET = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH})
_LEFT_BEHIND = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
_REMEDY = (
    "the partitions belong to others now, who read again from the last commit; go on reading, the consumer joins again"
)


class Standing(NamedTuple):
    """Who commits at the moment, and what for."""

    identity: GroupMetadata
    outside: str
    """Why the member is not in its group; empty while it is."""
    owned: frozenset[TopicPartition] | None
    """None where the caller chose the partitions itself: the group has no say."""


class Commits:
    """Owned by the loop of its client, which has connections of its own: a long fetch would hold up a commit."""

    def __init__(
        self, client: Client, group_id: str, standing: Callable[[], Standing], doubt: Callable[[], None]
    ) -> None:
        self._client = client
        self._group_id = group_id
        self._coordinator = GroupCoordinator(client, group_id)
        self._standing = standing
        self._doubt = doubt
        self._one_after_the_other = asyncio.Lock()  # a commit that is tried again must not undo a later one

    async def close(self) -> None:
        await self._client.close()

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        begun = self._standing()
        async with self._one_after_the_other:
            await self._commit(dict(offsets), begun)

    async def _commit(self, left: dict[TopicPartition, OffsetAndMetadata], begun: Standing) -> None:
        deadline = self._client.clock.monotonic() + self._client.retry_timeout_ms / 1000
        tries = 0
        while left:
            now = self._standing()
            self._check(now, begun, left)
            problem = await self._try(now, left)
            if problem is None:
                continue
            pause = self._client.backoff_seconds(tries)
            if self._client.clock.monotonic() + pause > deadline:
                raise self._given_up(now, problem)
            tries += 1
            await asyncio.sleep(pause)

    def _check(self, now: Standing, begun: Standing, offsets: Iterable[TopicPartition]) -> None:
        if now.outside:
            raise self._failed(ErrorCode.UNKNOWN_MEMBER_ID, now.outside)
        gone = [] if now.owned is None else [str(each) for each in offsets if each not in now.owned]
        if gone and now.identity != begun.identity:
            raise self._failed(ErrorCode.ILLEGAL_GENERATION, f"the group took {', '.join(gone)} away from the member")

    async def _try(self, who: Standing, left: dict[TopicPartition, OffsetAndMetadata]) -> KafkaError | None:
        """Commit, and take away from `left` what was; the problem, if it is worth another try."""
        try:
            answers = await self._send(who.identity, left)
            for code in answers.values():
                self._coordinator.check(code)
        except KafkaError as error:
            if not error.retriable:
                raise
            return error
        worth: KafkaError | None = None
        for partition, code in answers.items():
            if code == ErrorCode.NONE:
                left.pop(partition, None)
                continue
            problem = refused(code, f"offset of {partition} for group {self._group_id!r}")
            if code in _LEFT_BEHIND:
                self._doubt()
                if who.identity == self._standing().identity:
                    raise self._left_behind(who, problem.code)
            elif code in _NOT_YET:
                self._doubt()
            elif code == ErrorCode.UNKNOWN_TOPIC_ID:
                self._client.metadata.forget([partition.topic])
            else:
                raise problem
            worth = problem
        return worth

    def _given_up(self, who: Standing, problem: KafkaError) -> KafkaError:
        if problem.code in _LEFT_BEHIND:
            return self._left_behind(who, problem.code)
        if problem.code in _NOT_YET:
            waited = f"the group still rebalances after {self._client.retry_timeout_ms} ms"
            return self._failed(problem.code, waited, "go on reading, and commit again")
        return problem

    def _left_behind(self, who: Standing, code: ErrorCode) -> CommitFailed:
        if who.owned is None:
            why = "it has members that subscribe to topics, and a consumer that chooses its partitions itself is none"
            return self._failed(code, why, "give that consumer a group of its own")
        return self._failed(code, "the group has gone on without the member")

    def _failed(self, code: ErrorCode, why: str, remedy: str = _REMEDY) -> CommitFailed:
        return CommitFailed(code, f"offsets of group {self._group_id!r} were not committed: {why}; {remedy}")

    async def _send(
        self, who: GroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, int]:
        ids = await self._topic_ids(offsets)
        topics = []
        for topic, numbers in by_topic(offsets).items():
            partitions = []
            for number in numbers:
                committed = offsets[TopicPartition(topic, number)]
                partitions.append(
                    OffsetCommitRequestPartition(number, committed.offset, committed.leader_epoch, committed.metadata)
                )
            topics.append(OffsetCommitRequestTopic(topic, ids.get(topic, ZERO_UUID), partitions))
        request = OffsetCommitRequest(
            self._group_id, who.generation, who.member_id, who.group_instance_id, topics=topics
        )
        response: OffsetCommitResponse = await self._coordinator.ask(request, highest=self._highest(ids, topics))
        names = {topic_id: name for name, topic_id in ids.items()}
        return {
            TopicPartition(topic.name or names[topic.topic_id], partition.partition_index): partition.error_code
            for topic in response.topics
            for partition in topic.partitions
        }

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        wanted = list(partitions)
        if not wanted:
            return {}
        return await self._client.retrying(lambda: self._fetch(wanted))

    async def _fetch(self, partitions: list[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        ids = await self._topic_ids(partitions)
        grouped = by_topic(partitions)
        by_id = [OffsetFetchRequestTopics(topic, ids.get(topic, ZERO_UUID), each) for topic, each in grouped.items()]
        request = OffsetFetchRequest(
            self._group_id,
            [OffsetFetchRequestTopic(topic, each) for topic, each in grouped.items()],
            [OffsetFetchRequestGroup(self._group_id, topics=by_id)],
            require_stable=True,
        )
        response: OffsetFetchResponse = await self._coordinator.ask(request, highest=self._highest(ids, by_id))
        answer: Any = response.groups[0] if response.groups else response
        self._coordinator.check(answer.error_code)
        if answer.error_code != ErrorCode.NONE:
            raise refused(answer.error_code, f"offsets of group {self._group_id!r}")
        names = {topic_id: name for name, topic_id in ids.items()}
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        for topic in answer.topics:
            name = topic.name or names[topic.topic_id]
            for each in topic.partitions:
                partition = TopicPartition(name, each.partition_index)
                if each.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
                    self._client.metadata.forget([name])
                if each.error_code != ErrorCode.NONE:
                    raise refused(each.error_code, f"offset of {partition} for group {self._group_id!r}")
                known = each.committed_offset != _NO_OFFSET
                offset = OffsetAndMetadata(each.committed_offset, each.metadata or "", each.committed_leader_epoch)
                found[partition] = offset if known else None
        return found

    async def _topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[str, bytes]:
        """The ids of those topics that exist."""
        metadata = self._client.metadata
        names = {partition.topic for partition in partitions}
        if not names <= metadata.cluster.topics.keys():
            try:
                await metadata.refresh(sorted(names))
            except KafkaError as error:
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
        found = {name: metadata.cluster.topics.get(name) for name in names}
        return {name: topic.topic_id for name, topic in found.items() if topic and topic.topic_id != ZERO_UUID}

    @staticmethod
    def _highest(
        ids: Mapping[str, bytes], topics: list[OffsetCommitRequestTopic] | list[OffsetFetchRequestTopics]
    ) -> int | None:
        return None if len(ids) == len(topics) else _BY_NAME
