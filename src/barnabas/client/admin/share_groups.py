"""Share groups (KIP-932): where they begin to read each partition, and how to send them elsewhere.

What they have in common with other groups (list, describe, delete) is there: `admin.groups`. Barnabas serves none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from barnabas.client.client import Client
from barnabas.client.errors import refused
from barnabas.client.metadata import TopicPartition, by_topic
from barnabas.client.outcomes import alone, refusal, settled
from barnabas.client.routes import GROUPS, ask, ask_one
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k90_describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from barnabas.wire.messages.k91_alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from barnabas.wire.messages.k92_delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)

_NOT_TOLD = -1


@dataclass(frozen=True, slots=True)
class ShareOffset:
    start_offset: int
    """What lies before it is done with; -1 if nobody has read yet."""
    leader_epoch: int
    lag: int | None
    """How many records are still to be delivered, where the broker tells."""


class ShareGroups:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def list_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, ShareOffset]:
        """Those of a group, in these partitions or in all that it knows."""
        found = await alone(self.list_offsets_many({group: partitions}))
        return settled(found[group])

    async def list_offsets_many(
        self, groups: Mapping[str, Iterable[TopicPartition] | None]
    ) -> dict[str, dict[TopicPartition, ShareOffset | KafkaError]]:
        """The same for many groups; a partition may have an error of its own."""
        wanted = {group: _topics_of(partitions) for group, partitions in groups.items()}

        def request(some: Iterable[str]) -> DescribeShareGroupOffsetsRequest:
            asked = [DescribeShareGroupOffsetsRequestGroup(group, wanted[group]) for group in some]
            return DescribeShareGroupOffsetsRequest(asked)

        return settled(await ask(self._client, GROUPS, groups, request, _read_offsets))

    async def alter_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Send a group that has no members to these offsets."""
        request = AlterShareGroupOffsetsRequest(
            group,
            [
                AlterShareGroupOffsetsRequestTopic(
                    topic,
                    [
                        AlterShareGroupOffsetsRequestPartition(index, offsets[TopicPartition(topic, index)])
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(offsets).items()
            ],
        )

        def read(response: Any) -> dict[TopicPartition, KafkaError | None]:
            if response.error_code:
                raise refused(response.error_code, f"cannot alter share group {group!r}", response.error_message)
            return {
                partition: refusal(found.error_code, f"cannot send {group!r} in {partition}", found.error_message)
                for topic in response.responses
                for found in topic.partitions
                for partition in (TopicPartition(topic.topic_name, found.partition_index),)
            }

        settled(await ask_one(self._client, GROUPS, group, request, read))

    async def delete_offsets(self, group: str, topics: Iterable[str]) -> None:
        """Let a group that has no members forget topics."""
        wanted = [DeleteShareGroupOffsetsRequestTopic(topic) for topic in topics]

        def read(response: Any) -> dict[str, KafkaError | None]:
            if response.error_code:
                raise refused(response.error_code, f"cannot alter share group {group!r}", response.error_message)
            return {
                found.topic_name: refusal(
                    found.error_code, f"cannot forget topic {found.topic_name!r} in {group!r}", found.error_message
                )
                for found in response.responses
            }

        settled(await ask_one(self._client, GROUPS, group, DeleteShareGroupOffsetsRequest(group, wanted), read))


def _topics_of(partitions: Iterable[TopicPartition] | None) -> list[DescribeShareGroupOffsetsRequestTopic] | None:
    if partitions is None:
        return None
    return [DescribeShareGroupOffsetsRequestTopic(topic, indexes) for topic, indexes in by_topic(partitions).items()]


def _read_offsets(response: Any) -> dict[str, dict[TopicPartition, ShareOffset | KafkaError] | KafkaError]:
    return {
        group.group_id: refusal(
            group.error_code, f"cannot read the offsets of share group {group.group_id!r}", group.error_message
        )
        or {
            TopicPartition(topic.topic_name, found.partition_index): _offset(group.group_id, topic.topic_name, found)
            for topic in group.topics
            for found in topic.partitions
        }
        for group in response.groups
    }


def _offset(group: str, topic: str, found: Any) -> ShareOffset | KafkaError:
    what = f"cannot read the offset of share group {group!r} in {topic}-{found.partition_index}"
    problem = refusal(found.error_code, what, found.error_message)
    return problem or ShareOffset(found.start_offset, found.leader_epoch, None if found.lag == _NOT_TOLD else found.lag)
