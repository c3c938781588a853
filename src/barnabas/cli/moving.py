"""Replicas on the move: begin with a limit on their speed, follow them, call them off."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence, Set

from barnabas.cli.copies import Copies, OnProgress, measure
from barnabas.cli.plan import Plan
from barnabas.client.admin import configs, reassignments, topics
from barnabas.client.admin.cluster import describe_cluster
from barnabas.client.client import Client
from barnabas.client.metadata import PartitionInfo, TopicPartition, by_topic
from barnabas.core.errors import KafkaError

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
SOURCES, TARGETS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
_PAUSE_S = 0.25


async def begin(
    client: Client, plan: Plan, before: Mapping[TopicPartition, PartitionInfo], throttle: int | None
) -> dict[TopicPartition, KafkaError]:
    """Start the moves, of at most `throttle` bytes a second on each broker; what was refused, and why."""
    if throttle is not None:
        await _throttle(client, plan, before, throttle)
    return await reassignments.alter_reassignments(client, plan)


async def under_way(client: Client) -> Copies:
    """What is moving now."""
    moves = await reassignments.list_reassignments(client)
    found = await topics.describe_topics(client, by_topic(move.partition for move in moves))
    leaders = {TopicPartition(topic.name, each.partition): each.leader for topic in found for each in topic.partitions}
    return await measure(client, {move.partition: move.adding for move in moves}, leaders)


async def follow(client: Client, copies: Copies, on_progress: OnProgress, timeout_s: float) -> bool:
    """Whether all have arrived in time."""
    deadline = client.clock.monotonic() + timeout_s
    moving = copies.targets.keys()
    while True:
        moves = await client.retrying(lambda: reassignments.list_reassignments(client))
        left = moving & {move.partition for move in moves}
        on_progress(len(moving) - len(left), await copies.copied_bytes(client, left))
        if not left:
            return True
        if client.clock.monotonic() + _PAUSE_S > deadline:
            return False
        await asyncio.sleep(_PAUSE_S)


async def let_preferred_lead(client: Client, moved: Set[TopicPartition]) -> None:
    """After the moves: the first replica leads, where it can."""
    found = await topics.describe_topics(client, by_topic(moved))
    await reassignments.elect_preferred_leaders(
        client,
        [
            partition
            for topic in found
            for info in topic.partitions
            if (partition := TopicPartition(topic.name, info.partition)) in moved and info.leader != info.replicas[0]
        ],
    )


async def call_off(client: Client) -> list[TopicPartition]:
    """Stop every move that is under way; its partition keeps the replicas that it had."""
    moving = [move.partition for move in await reassignments.list_reassignments(client)]
    if moving:
        refusals = await reassignments.alter_reassignments(client, dict.fromkeys(moving))
        moving = [partition for partition in moving if partition not in refusals]  # refused: it has just arrived
    await lift_throttle(client)
    return moving


async def _throttle(client: Client, plan: Plan, before: Mapping[TopicPartition, PartitionInfo], rate: int) -> None:
    for broker in await _living(client):
        await configs.alter_configs(client, configs.ResourceType.BROKER, broker, set_=dict.fromkeys(RATES, str(rate)))
    for topic, numbers in by_topic(plan).items():
        sources, targets = [], []
        for number in numbers:
            partition = TopicPartition(topic, number)
            old = before[partition].replicas
            sources += [f"{number}:{replica}" for replica in old]
            targets += [f"{number}:{replica}" for replica in plan[partition] if replica not in old]
        settings = {SOURCES: ",".join(sources), TARGETS: ",".join(targets)}
        await configs.alter_configs(client, configs.ResourceType.TOPIC, topic, set_=settings)


async def lift_throttle(client: Client) -> None:
    """Remove every limit that a reassignment has set."""
    for broker in await _living(client):
        entries = await configs.describe_configs(client, configs.ResourceType.BROKER, broker)
        if set_ := [e.name for e in entries if e.name in RATES and e.source is configs.ConfigSource.BROKER]:
            await configs.alter_configs(client, configs.ResourceType.BROKER, broker, delete=set_)
    names = [topic.name for topic in await topics.list_topics(client, internal=True)]
    limited = await configs.describe_topic_configs(client, names, (SOURCES, TARGETS))
    for topic, found in limited.items():
        if set_ := [name for name, entry in found.items() if entry.source is configs.ConfigSource.TOPIC]:
            await configs.alter_configs(client, configs.ResourceType.TOPIC, topic, delete=set_)


async def _living(client: Client) -> Sequence[str]:
    found = await describe_cluster(client)
    return [str(broker.node_id) for broker in found.brokers if broker.node_id not in found.fenced]
