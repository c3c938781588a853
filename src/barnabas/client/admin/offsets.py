"""Committed offsets: how far a group has come in each partition, and how to send it elsewhere.

They can be changed and deleted only while nobody in the group works on these partitions: stop its consumers first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from barnabas.client.client import Client
from barnabas.client.errors import refused
from barnabas.client.group.values import OffsetAndMetadata
from barnabas.client.list_offsets import LATEST, look_up_offsets, resolve_offsets
from barnabas.client.metadata import TopicPartition, by_topic
from barnabas.client.offsets import OffsetSpec
from barnabas.client.outcomes import alone, refusal, settled
from barnabas.client.routes import GROUPS, ask, ask_one
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

_HIGHEST_WITH_NAMES = 9
"""Later versions of OffsetFetch and OffsetCommit call topics by their ids."""
_NOT_COMMITTED = -1
_REMEDIES = {
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members; stop its consumers first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group is subscribed to the topic; stop its consumers first",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such partition",
}


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """Where a group was in a partition, None if nowhere, and where it is sent."""

    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class PartitionLag:
    committed: OffsetAndMetadata
    end_offset: int

    @property
    def lag(self) -> int:
        """How many offsets are still to be read; none if the log ends before what was committed."""
        return max(0, self.end_offset - self.committed.offset)


class Offsets:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def list(
        self, group: str, partitions: Iterable[TopicPartition] | None = None, *, stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed, in these partitions or in all; `stable` waits for open transactions."""
        return (await alone(self.list_many({group: partitions}, stable=stable)))[group]

    async def list_many(
        self, groups: Mapping[str, Iterable[TopicPartition] | None], *, stable: bool = False
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """The same for many groups at once; None is every partition that a group has committed."""
        wanted = {group: _topics_of(partitions) for group, partitions in groups.items()}

        def request(some: Iterable[str]) -> OffsetFetchRequest:
            asked = [OffsetFetchRequestGroup(group, None, -1, wanted[group]) for group in some]
            return OffsetFetchRequest(groups=asked, require_stable=stable)

        return settled(await ask(self._client, GROUPS, groups, request, _read_committed, highest=_HIGHEST_WITH_NAMES))

    async def lag(self, group: str) -> dict[TopicPartition, PartitionLag]:
        """How far a group is behind the end of each partition that it has committed, in the order of their names."""
        committed = await self.list(group)
        ends = await look_up_offsets(self._client, dict.fromkeys(sorted(committed), LATEST))
        return settled(
            {
                partition: end if isinstance(end, KafkaError) else PartitionLag(committed[partition], end.offset)
                for partition, end in ends.items()
            }
        )

    async def alter(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]) -> None:
        """Commit offsets for a group that nobody works in; one that does not exist is created by it."""
        request = OffsetCommitRequest(
            group_id=group,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[_commit(index, offsets[TopicPartition(topic, index)]) for index in indexes],
                )
                for topic, indexes in by_topic(offsets).items()
            ],
        )

        def read(response: Any) -> dict[TopicPartition, KafkaError | None]:
            return _partition_errors(response, f"cannot commit for group {group!r} in")

        settled(await ask_one(self._client, GROUPS, group, request, read, highest=_HIGHEST_WITH_NAMES))

    async def reset(
        self,
        group: str,
        place: OffsetSpec,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        dry_run: bool = False,
    ) -> dict[TopicPartition, OffsetReset]:
        """Send a group to a place in these partitions, or in all that it has committed; the answer is what changes.

        `dry_run` changes nothing.
        """
        chosen = None if partitions is None else list(partitions)
        before = await self.list(group, chosen)
        wanted = list(before) if chosen is None else chosen
        after = await resolve_offsets(self._client, wanted, place)
        if after and not dry_run:
            await self.alter(group, after)
        return {
            partition: OffsetReset(before[partition].offset if partition in before else None, after[partition])
            for partition in wanted
        }

    async def delete(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget what a group has committed in these partitions."""
        request = OffsetDeleteRequest(
            group,
            [
                OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(index) for index in indexes])
                for topic, indexes in by_topic(partitions).items()
            ],
        )

        def read(response: Any) -> dict[TopicPartition, KafkaError | None]:
            if response.error_code:
                raise refused(response.error_code, f"cannot forget offsets of group {group!r}")
            return _partition_errors(response, f"cannot forget group {group!r} in")

        settled(await ask_one(self._client, GROUPS, group, request, read))


def _topics_of(partitions: Iterable[TopicPartition] | None) -> list[OffsetFetchRequestTopics] | None:
    if partitions is None:
        return None
    return [
        OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
        for topic, indexes in by_topic(partitions).items()
    ]


def _read_committed(response: Any) -> dict[str, dict[TopicPartition, OffsetAndMetadata] | KafkaError]:
    return {found.group_id: _committed(found) for found in response.groups}


def _committed(found: Any) -> dict[TopicPartition, OffsetAndMetadata] | KafkaError:
    """The first error is that of the whole group: an unstable offset is asked for again with all the others."""
    committed = {}
    problem = refusal(found.error_code, f"cannot read the offsets of group {found.group_id!r}")
    for topic in found.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            what = f"cannot read the offset of group {found.group_id!r} in {partition}"
            problem = problem or refusal(each.error_code, what)
            if each.committed_offset != _NOT_COMMITTED:
                committed[partition] = OffsetAndMetadata(
                    each.committed_offset, each.metadata or "", each.committed_leader_epoch
                )
    return problem or committed


def _commit(index: int, offset: OffsetAndMetadata | int) -> OffsetCommitRequestPartition:
    value = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
    return OffsetCommitRequestPartition(index, value.offset, value.leader_epoch, value.metadata)


def _partition_errors(response: Any, what: str) -> dict[TopicPartition, KafkaError | None]:
    """Why partitions were refused; an error that a coordinator has for a while is raised, to be asked again."""
    errors = {
        partition: refusal(found.error_code, f"{what} {partition}", _REMEDIES.get(found.error_code))
        for topic in response.topics
        for found in topic.partitions
        for partition in (TopicPartition(topic.name, found.partition_index),)
    }
    for error in errors.values():
        if error is not None and error.code in GROUPS.again:
            raise error
    return errors
