"""Groups of Kafka Streams (KIP-1071): their topology, and who has which tasks. Barnabas serves none.

What they have in common with other groups (list, delete, offsets) is there: `admin.groups` and `admin.offsets`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from barnabas.client.admin.groups import GroupState
from barnabas.client.client import Client
from barnabas.client.outcomes import alone, refusal, settled
from barnabas.client.routes import GROUPS, ask
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k89_streams_group_describe import StreamsGroupDescribeRequest


class Task(NamedTuple):
    subtopology: str
    partition: int


@dataclass(frozen=True, slots=True)
class Tasks:
    active: tuple[Task, ...]
    standby: tuple[Task, ...]
    warmup: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class Subtopology:
    subtopology_id: str
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    state_changelog_topics: tuple[str, ...]
    repartition_source_topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StreamsMember:
    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    rack: str | None
    epoch: int
    process_id: str
    assignment: Tasks
    target: Tasks
    """What it will have when the group has settled."""


@dataclass(frozen=True, slots=True)
class StreamsGroupDescription:
    group_id: str
    state: GroupState
    epoch: int
    assignment_epoch: int
    topology: tuple[Subtopology, ...]
    members: tuple[StreamsMember, ...]


class StreamsGroups:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def describe(self, group: str) -> StreamsGroupDescription:
        return (await alone(self.describe_many([group])))[group]

    async def describe_many(self, groups: Iterable[str]) -> dict[str, StreamsGroupDescription]:
        return settled(await ask(self._client, GROUPS, groups, StreamsGroupDescribeRequest, _read))


def _read(response: Any) -> dict[str, StreamsGroupDescription | KafkaError]:
    return {
        found.group_id: refusal(
            found.error_code, f"cannot describe streams group {found.group_id!r}", found.error_message
        )
        or StreamsGroupDescription(
            found.group_id,
            GroupState(found.group_state),
            found.group_epoch,
            found.assignment_epoch,
            tuple(_subtopology(each) for each in (found.topology and found.topology.subtopologies) or ()),
            tuple(_member(member) for member in found.members),
        )
        for found in response.groups
    }


def _subtopology(found: Any) -> Subtopology:
    return Subtopology(
        found.subtopology_id,
        tuple(found.source_topics),
        tuple(found.repartition_sink_topics),
        tuple(topic.name for topic in found.state_changelog_topics),
        tuple(topic.name for topic in found.repartition_source_topics),
    )


def _member(member: Any) -> StreamsMember:
    return StreamsMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rack_id,
        member.member_epoch,
        member.process_id,
        _tasks(member.assignment),
        _tasks(member.target_assignment),
    )


def _tasks(assignment: Any) -> Tasks:
    return Tasks(_listed(assignment.active_tasks), _listed(assignment.standby_tasks), _listed(assignment.warmup_tasks))


def _listed(tasks: Iterable[Any]) -> tuple[Task, ...]:
    return tuple(sorted(Task(each.subtopology_id, index) for each in tasks for index in each.partitions))
