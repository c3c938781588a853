"""A group as its coordinator and the leaders of its partitions tell it: members, and the lag of each partition."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from barnabas.client.admin.admin import Admin
from barnabas.client.list_offsets import LATEST
from barnabas.client.metadata import TopicPartition, by_topic
from barnabas.core.errors import ErrorCode, KafkaError


async def describe_group(admin: Admin, group: str) -> dict[str, Any]:
    found = await admin.groups.describe(group)
    committed = await admin.offsets.list(group)
    readers = {partition: member for member in found.members for partition in member.assignment}
    ends = await _ends(admin, committed.keys() | readers.keys())

    def row(partition: TopicPartition) -> dict[str, Any]:
        offset = committed[partition].offset if partition in committed else None
        end, reader = ends.get(partition), readers.get(partition)
        return {
            "topic": partition.topic,
            "partition": partition.partition,
            "committed": offset,
            "end_offset": end,
            "lag": None if offset is None or end is None else max(0, end - offset),
            "member": reader.member_id if reader else None,
        }

    rows = [row(partition) for partition in sorted(committed.keys() | readers.keys())]
    return {
        "group": group,
        "type": str(found.type),
        "state": found.state.name.lower(),
        "assignor": found.assignor or None,
        "epoch": found.epoch,
        "lag": sum(row["lag"] or 0 for row in rows),
        "members": [
            {
                "member": member.member_id,
                "instance": member.group_instance_id,
                "client": member.client_id,
                "host": member.host,
                "partitions": [str(partition) for partition in member.assignment],
            }
            for member in found.members
        ],
        "partitions": rows,
    }


async def _ends(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Where the partitions end; a topic that was deleted since then has no end, and keeps its row."""
    ends: dict[TopicPartition, int] = {}
    for topic, indexes in by_topic(partitions).items():
        wanted = [TopicPartition(topic, index) for index in indexes]
        try:
            found = await admin.partitions.list_offsets(dict.fromkeys(wanted, LATEST))
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        else:
            ends.update({partition: end.offset for partition, end in found.items()})
    return ends
