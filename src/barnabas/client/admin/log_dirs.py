"""Log directories: what a broker's disks hold, and moving a replica from one to another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from barnabas.client.client import Client
from barnabas.client.errors import refused
from barnabas.client.metadata import TopicPartition, by_topic
from barnabas.client.outcomes import refusal, settled
from barnabas.client.routes import BROKERS, ask_singly, serving_brokers
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.wire.messages.k35_describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

_NOT_TOLD = -1


class Replica(NamedTuple):
    """A partition's copy on one broker."""

    partition: TopicPartition
    broker: int

    def __str__(self) -> str:
        return f"{self.partition} on broker {self.broker}"


@dataclass(frozen=True, slots=True)
class ReplicaOnDisk:
    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    """How far it is behind the partition's high watermark, or, on its way into this directory, behind the replica."""
    is_future: bool
    """Whether it is the copy that will take the replica's place when it has caught up."""


@dataclass(frozen=True, slots=True)
class LogDir:
    path: str
    error: KafkaError | None
    """Why the directory does not serve; None if it does."""
    total_bytes: int | None
    usable_bytes: int | None
    is_cordoned: bool
    """Whether it takes no new replicas."""
    replicas: tuple[ReplicaOnDisk, ...]


class LogDirs:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def describe(
        self, brokers: Iterable[int] | None = None, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[int, tuple[LogDir, ...]]:
        """The directories of these brokers, or of all, with their replicas of these partitions, or of all."""
        wanted = None
        if partitions is not None:
            wanted = [DescribableLogDirTopic(topic, indexes) for topic, indexes in by_topic(partitions).items()]
        asked = await serving_brokers(self._client) if brokers is None else brokers
        request = DescribeLogDirsRequest(wanted)
        return settled(await ask_singly(self._client, BROKERS, asked, lambda _: request, _read_dirs))

    async def replica_bytes(self, broker: int, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The sizes of those of the partitions that a broker has."""
        found = (await self.describe([broker], partitions))[broker]
        replicas = (replica for directory in found for replica in directory.replicas)
        return {replica.partition: replica.size_bytes for replica in replicas if not replica.is_future}

    async def alter(self, paths: Mapping[Replica, str]) -> None:
        """Move replicas to other directories of their brokers; each goes on serving until its copy has caught up."""
        by_broker: dict[int, dict[TopicPartition, str]] = {}
        for (partition, broker), path in paths.items():
            by_broker.setdefault(broker, {})[partition] = path
        answers = await ask_singly(
            self._client, BROKERS, by_broker, lambda broker: _moves(by_broker[broker]), _read_altered
        )
        settled({replica: _outcome(answers[replica.broker], replica, path) for replica, path in paths.items()})


def _outcome(answer: Mapping[TopicPartition, int] | KafkaError, replica: Replica, path: str) -> KafkaError | None:
    if isinstance(answer, KafkaError):
        return answer
    code = answer.get(replica.partition, ErrorCode.UNKNOWN_SERVER_ERROR)
    return refusal(code, f"cannot move {replica} to {path}")


def _moves(paths: Mapping[TopicPartition, str]) -> AlterReplicaLogDirsRequest:
    by_path: dict[str, list[TopicPartition]] = {}
    for partition, path in paths.items():
        by_path.setdefault(path, []).append(partition)
    return AlterReplicaLogDirsRequest(
        [
            AlterReplicaLogDir(
                path, [AlterReplicaLogDirTopic(topic, indexes) for topic, indexes in by_topic(partitions).items()]
            )
            for path, partitions in by_path.items()
        ]
    )


def _read_altered(response: Any) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.topic_name, found.partition_index): found.error_code
        for topic in response.results
        for found in topic.partitions
    }


def _read_dirs(response: Any) -> tuple[LogDir, ...]:
    if response.error_code:
        raise refused(response.error_code, "cannot describe log directories")
    return tuple(
        LogDir(
            found.log_dir,
            refusal(found.error_code, f"directory {found.log_dir}"),
            None if found.total_bytes == _NOT_TOLD else found.total_bytes,
            None if found.usable_bytes == _NOT_TOLD else found.usable_bytes,
            found.is_cordoned,
            tuple(
                ReplicaOnDisk(
                    TopicPartition(topic.name, each.partition_index),
                    each.partition_size,
                    each.offset_lag,
                    each.is_future_key,
                )
                for topic in found.topics
                for each in topic.partitions
            ),
        )
        for found in response.results
    )
