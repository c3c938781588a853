"""The controller: a pure function from the image and an event to records and a reply.

It keeps no state. What it decides becomes true when its records are in the metadata log, and every broker that folds
them arrives at the same image; the one that asked gets the reply then. `metadata_log` drives it. The decisions
themselves are in `brokers`, `topics`, `configs`, `alter_partition`, `leaders` and `reassignment`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from barnabas.cluster import alter_partition, brokers, configs, events, leaders, reassignment, topics
from barnabas.cluster.image import Image
from barnabas.cluster.outcome import Context, Outcome
from barnabas.core.broker_config import BrokerConfig

_DECISIONS: dict[type, Callable[[Image, Any, Context], Outcome]] = {
    events.RegisterBroker: brokers.register_broker,
    events.BrokerHeartbeat: brokers.heartbeat,
    events.FenceBroker: brokers.fence_broker,
    events.UnregisterBroker: brokers.unregister_broker,
    events.AllocateProducerIds: brokers.allocate_producer_ids,
    events.AlterPartition: alter_partition.alter_partition,
    events.ElectLeaders: leaders.elect_leaders,
    events.BalanceLeaders: leaders.balance_leaders,
    events.AlterReassignments: reassignment.alter_reassignments,
    events.CreateTopics: topics.create_topics,
    events.DeleteTopics: topics.delete_topics,
    events.CreatePartitions: topics.create_partitions,
    events.IncrementalAlterConfigs: configs.incremental_alter_configs,
    events.AlterConfigs: configs.alter_configs,
}


def decide(image: Image, event: events.Event[Any], rng: Random, config: BrokerConfig) -> Outcome:
    """`KafkaError` if the event as a whole is refused. Nothing changes by being decided."""
    return _DECISIONS[type(event)](image, event, Context(rng, config))
