"""The coordinator of groups: `__consumer_offsets`, with the broker's settings.

The state machines are imported with the first shard: a broker without groups starts without them.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from barnabas.broker.coordinators import Coordinator
from barnabas.cluster.events import NewTopic
from barnabas.coordinator.subscriptions import TopicInfo, Topics

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.cluster.image import Image
    from barnabas.coordinator.group_shard import GroupShard
    from barnabas.core.broker_config import BrokerConfig

OFFSETS_TOPIC = "__consumer_offsets"
_REPLICAS = "offsets.topic.replication.factor"
_MINUTE_MS = 60_000
_BATCH_OVERHEAD_BYTES = 100  # of a batch around a single record


def group_coordinator(broker: Broker, random: Random) -> Coordinator[GroupShard]:
    config = broker.config
    settings = NewTopic(
        OFFSETS_TOPIC,
        config["offsets.topic.num.partitions"],
        config[_REPLICAS],
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config["offsets.topic.segment.bytes"]),
        },
    )
    return Coordinator(
        broker,
        OFFSETS_TOPIC,
        settings,
        lambda partition: _new_shard(config, random, topics_of(broker.metadata.image)),
        may_have_fewer_replicas=not config.is_chosen(_REPLICAS),
    )


def _new_shard(config: BrokerConfig, random: Random, topics: Topics) -> GroupShard:
    from barnabas.coordinator.classic_group import ClassicGroupConfig
    from barnabas.coordinator.consumer_group import ConsumerGroupConfig
    from barnabas.coordinator.group_shard import GroupShard, GroupShardConfig
    from barnabas.coordinator.migration import MigrationPolicy

    settings = GroupShardConfig(
        ClassicGroupConfig(
            config["group.min.session.timeout.ms"],
            config["group.max.session.timeout.ms"],
            config["group.initial.rebalance.delay.ms"],
            config["group.max.size"],
            config["message.max.bytes"] - _BATCH_OVERHEAD_BYTES,
        ),
        ConsumerGroupConfig(
            config["group.consumer.session.timeout.ms"],
            config["group.consumer.heartbeat.interval.ms"],
            config["group.consumer.max.size"],
            config["group.consumer.assignors"],
            config["group.consumer.assignment.interval.ms"],
        ),
        next(policy for policy in MigrationPolicy if policy.value[0] == config["group.consumer.migration.policy"]),
        config["offsets.retention.minutes"] * _MINUTE_MS,
        config["offsets.retention.check.interval.ms"],
        config["offset.metadata.max.bytes"],
        config["message.max.bytes"],
    )
    return GroupShard(settings, random, topics)


def topics_of(image: Image) -> Topics:
    """The topics as the groups see them."""
    return {topic.name: TopicInfo(topic.id, len(topic.partitions)) for topic in image.topics.values()}
