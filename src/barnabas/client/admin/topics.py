"""Topics: create, list, describe, delete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from barnabas.client.client import Client
from barnabas.client.metadata import PartitionInfo, TopicInfo, topic_error, topic_info
from barnabas.client.outcomes import alone, refusal, settled
from barnabas.client.routes import ANY, CONTROLLER, ask, ask_one
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import uuid_text
from barnabas.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.k75_describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest

BROKER_DEFAULT = -1
"""As a number of partitions or replicas: what the broker is configured to choose."""
_TIMEOUT_MS = 30_000
_PAGE_PARTITIONS = 2000


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be; `assignment` places the replicas of each partition by hand and stands for both numbers."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignment: Sequence[Sequence[int]] = ()
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int


class Topics:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def create(
        self,
        name: str,
        *,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        assignment: Sequence[Sequence[int]] = (),
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Create a topic, or with `validate_only` learn whether it could be; see `NewTopic`."""
        wanted = NewTopic(name, partitions, replication_factor, assignment, configs or {})
        return (await alone(self.create_many([wanted], validate_only=validate_only)))[name]

    async def create_many(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> dict[str, CreatedTopic]:
        wanted = {topic.name: topic for topic in topics}

        def request(names: Iterable[str]) -> CreateTopicsRequest:
            return CreateTopicsRequest([_creatable(wanted[name]) for name in names], _TIMEOUT_MS, validate_only)

        return settled(await ask(self._client, CONTROLLER, wanted, request, _read_created))

    async def delete(self, name: str) -> None:
        """Delete a topic with all its records."""
        await alone(self.delete_many([name]))

    async def delete_many(self, names: Iterable[str]) -> None:
        def request(some: list[str]) -> DeleteTopicsRequest:
            states = [DeleteTopicState(name=name) for name in some]
            return DeleteTopicsRequest(topics=states, topic_names=some, timeout_ms=_TIMEOUT_MS)

        wanted = list(names)
        answers = await ask(self._client, CONTROLLER, wanted, request, _read_deleted)
        self._client.metadata.forget(wanted)
        settled(answers)

    async def delete_by_id(self, topic_ids: Iterable[bytes]) -> None:
        """The same by id: a topic of the same name that was created since is not touched."""

        def request(some: list[bytes]) -> DeleteTopicsRequest:
            states = [DeleteTopicState(topic_id=topic_id) for topic_id in some]
            return DeleteTopicsRequest(topics=states, timeout_ms=_TIMEOUT_MS)

        answers = await ask(self._client, CONTROLLER, topic_ids, request, _read_deleted_by_id)
        self._client.metadata.forget(list(self._client.metadata.cluster.topics))
        settled(answers)

    async def describe(self, name: str) -> TopicInfo:
        """The topic as it is now, with what Metadata does not tell: eligible leader replicas (KIP-966)."""
        return (await alone(self.describe_many([name])))[name]

    async def describe_many(
        self, names: Iterable[str] | None = None, *, page_partitions: int = _PAGE_PARTITIONS
    ) -> dict[str, TopicInfo]:
        """These topics, or all of them; they come in pages of so many partitions."""
        wanted = None if names is None else list(names)
        answers: dict[str, TopicInfo | KafkaError] = {}
        if wanted == []:
            return {}
        request = DescribeTopicPartitionsRequest([TopicRequest(name) for name in wanted or ()], page_partitions)
        while True:
            response = await ask_one(self._client, ANY, None, request, lambda response: response)
            for topic in response.topics:
                before = answers.get(topic.name)
                known = before.partitions if isinstance(before, TopicInfo) else ()
                answers[topic.name] = _described(topic, known)
            if response.next_cursor is None:
                found = settled(answers)
                return {name: found[name] for name in sorted(found)}
            request.cursor = response.next_cursor

    async def describe_by_id(self, topic_ids: Iterable[bytes]) -> dict[bytes, TopicInfo]:
        """Topics by their ids, without eligible leader replicas."""

        def request(some: list[bytes]) -> MetadataRequest:
            topics = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in some]
            return MetadataRequest(topics=topics, allow_auto_topic_creation=False)

        return settled(await ask(self._client, ANY, topic_ids, request, _read_by_id))

    async def list(self, *, internal: bool = False) -> list[TopicInfo]:
        """All topics by name; those that Kafka keeps for itself only on request."""
        found = await self._client.retrying(self._client.metadata.all_topics)
        return [topic for topic in found if internal or not topic.is_internal]


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=BROKER_DEFAULT if topic.assignment else topic.partitions,
        replication_factor=BROKER_DEFAULT if topic.assignment else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(index, list(replicas)) for index, replicas in enumerate(topic.assignment)
        ],
        configs=[CreatableTopicConfig(key, value) for key, value in topic.configs.items()],
    )


def _read_created(response: Any) -> dict[str, CreatedTopic | KafkaError]:
    return {
        found.name: refusal(found.error_code, f"cannot create topic {found.name!r}", found.error_message)
        or CreatedTopic(found.name, found.topic_id, found.num_partitions, found.replication_factor)
        for found in response.topics
    }


def _read_deleted(response: Any) -> dict[str, KafkaError | None]:
    return {found.name: _deletion(found, repr(found.name)) for found in response.responses}


def _read_deleted_by_id(response: Any) -> dict[bytes, KafkaError | None]:
    return {found.topic_id: _deletion(found, uuid_text(found.topic_id)) for found in response.responses}


def _deletion(found: Any, topic: str) -> KafkaError | None:
    unknown = found.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
    return refusal(
        found.error_code, f"cannot delete topic {topic}", "it does not exist" if unknown else found.error_message
    )


def _described(topic: Any, known: tuple[PartitionInfo, ...]) -> TopicInfo | KafkaError:
    """The topic with one more page of its partitions."""
    if topic.error_code:
        return topic_error(topic.error_code, topic.name)
    page = (
        replace(
            info,
            eligible_leader_replicas=tuple(partition.eligible_leader_replicas or ()),
            last_known_elr=tuple(partition.last_known_elr or ()),
        )
        for partition, info in zip(topic.partitions, topic_info(topic).partitions, strict=True)
    )
    return TopicInfo(topic.name, topic.topic_id, topic.is_internal, (*known, *page))


def _read_by_id(response: Any) -> dict[bytes, TopicInfo | KafkaError]:
    return {
        topic.topic_id: refusal(topic.error_code, f"topic {uuid_text(topic.topic_id)}") or topic_info(topic)
        for topic in response.topics
    }
