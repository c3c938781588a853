"""A topic as the cluster tells it: its settings, its partitions and what each holds."""

from __future__ import annotations

from typing import Any

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.configs import ConfigSource, ResourceType
from barnabas.client.metadata import NO_LEADER
from barnabas.core.ids import uuid_text


async def describe_topic(admin: Admin, name: str, *, all_configs: bool) -> dict[str, Any]:
    topic = await admin.topics.describe(name)
    states = await admin.partitions.states(topic)
    entries = await admin.configs.describe(ResourceType.TOPIC, name)
    return {
        "topic": topic.name,
        "topic_id": uuid_text(topic.topic_id),
        "internal": topic.is_internal,
        "configs": {
            entry.name: entry.value for entry in entries.values() if all_configs or entry.source is ConfigSource.TOPIC
        },
        "partitions": [
            {
                "partition": state.info.partition,
                "leader": None if state.info.leader == NO_LEADER else state.info.leader,
                "leader_epoch": state.info.leader_epoch,
                "replicas": list(state.info.replicas),
                "isr": list(state.info.isr),
                "elr": list(state.info.eligible_leader_replicas),
                "last_known_elr": list(state.info.last_known_elr),
                "log_start_offset": state.log_start_offset,
                "end_offset": state.end_offset,
            }
            for state in states
        ],
    }
