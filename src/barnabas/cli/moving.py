"""Replicas on the move: begin with a limit on their speed, follow them, call them off."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress

from barnabas.cli.copies import Copies, OnProgress, measure
from barnabas.cli.plan import Plan
from barnabas.client.admin.cluster import Cluster
from barnabas.client.admin.configs import ConfigResource, Configs, ConfigSource, ResourceType
from barnabas.client.admin.elections import Elections
from barnabas.client.admin.reassignments import Reassignments
from barnabas.client.admin.topics import Topics
from barnabas.client.client import Client
from barnabas.client.metadata import PartitionInfo, TopicPartition, by_topic
from barnabas.client.outcomes import PartlyFailed
from barnabas.core.errors import ErrorCode, KafkaError

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
SOURCES, TARGETS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
_PAUSE_S = 0.25


async def begin(
    client: Client, plan: Plan, before: Mapping[TopicPartition, PartitionInfo], throttle: int | None
) -> dict[TopicPartition, KafkaError]:
    """Start the moves, of at most `throttle` bytes a second on each broker; what was refused, and why."""
    if throttle is not None:
        await _throttle(client, plan, before, throttle)
    try:
        await Reassignments(client).alter(plan)
    except PartlyFailed as failed:
        return failed.errors
    return {}


async def under_way(client: Client) -> Copies:
    """What is moving now."""
    moves = await Reassignments(client).list()
    found = await Topics(client).describe_many(by_topic(move.partition for move in moves))
    leaders = {
        TopicPartition(topic.name, each.partition): each.leader for topic in found.values() for each in topic.partitions
    }
    return await measure(client, {move.partition: move.adding for move in moves}, leaders)


async def follow(client: Client, copies: Copies, on_progress: OnProgress, timeout_s: float) -> bool:
    """Whether all have arrived in time."""
    deadline = client.clock.monotonic() + timeout_s
    moving = copies.targets.keys()
    while True:
        moves = await Reassignments(client).list()
        left = moving & {move.partition for move in moves}
        on_progress(len(moving) - len(left), await copies.copied_bytes(client, left))
        if not left:
            return True
        if client.clock.monotonic() + _PAUSE_S > deadline:
            return False
        await asyncio.sleep(_PAUSE_S)


async def let_preferred_lead(client: Client, moved: Set[TopicPartition]) -> None:
    """After the moves: the first replica leads, where it can."""
    found = await Topics(client).describe_many(by_topic(moved))
    others = [
        partition
        for topic in found.values()
        for info in topic.partitions
        if (partition := TopicPartition(topic.name, info.partition)) in moved and info.leader != info.replicas[0]
    ]
    with suppress(PartlyFailed):
        await Elections(client).preferred(others)


async def call_off(client: Client) -> list[TopicPartition]:
    """Stop every move that is under way; its partition keeps the replicas that it had."""
    moving = [move.partition for move in await Reassignments(client).list()]
    try:
        await Reassignments(client).cancel(moving)
    except PartlyFailed as failed:
        if any(error.code is not ErrorCode.NO_REASSIGNMENT_IN_PROGRESS for error in failed.errors.values()):
            raise
        moving = list(failed.done)  # the others have just arrived
    await lift_throttle(client)
    return moving


async def _throttle(client: Client, plan: Plan, before: Mapping[TopicPartition, PartitionInfo], rate: int) -> None:
    for broker in await _living(client):
        await Configs(client).alter(ResourceType.BROKER, broker, set_=dict.fromkeys(RATES, str(rate)))
    for topic, numbers in by_topic(plan).items():
        sources, targets = [], []
        for number in numbers:
            partition = TopicPartition(topic, number)
            old = before[partition].replicas
            sources += [f"{number}:{replica}" for replica in old]
            targets += [f"{number}:{replica}" for replica in plan[partition] if replica not in old]
        settings = {SOURCES: ",".join(sources), TARGETS: ",".join(targets)}
        await Configs(client).alter(ResourceType.TOPIC, topic, set_=settings)


async def lift_throttle(client: Client) -> None:
    """Remove every limit that a reassignment has set."""
    for broker in await _living(client):
        entries = await Configs(client).describe(ResourceType.BROKER, broker, RATES)
        if set_ := [e.name for e in entries.values() if e.source is ConfigSource.BROKER]:
            await Configs(client).alter(ResourceType.BROKER, broker, delete=set_)
    topics = [ConfigResource(ResourceType.TOPIC, topic.name) for topic in await Topics(client).list(internal=True)]
    limited = await Configs(client).describe_many(topics, (SOURCES, TARGETS))
    for topic, found in limited.items():
        if set_ := [name for name, entry in found.items() if entry.source is ConfigSource.TOPIC]:
            await Configs(client).alter(ResourceType.TOPIC, topic.name, delete=set_)


async def _living(client: Client) -> Sequence[str]:
    found = await Cluster(client).describe()
    return [str(broker.node_id) for broker in found.brokers if broker.node_id not in found.fenced]
