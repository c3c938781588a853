"""Open transactions in partitions, and which of them hang: those that no coordinator is going to end."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from barnabas.client.admin.admin import Admin
from barnabas.client.metadata import TopicPartition


async def producers(admin: Admin, partitions: Collection[TopicPartition]) -> list[dict[str, Any]]:
    """A row for each producer that a partition's leader knows."""
    found = await admin.producers.describe_many(partitions)
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "producer_id": state.producer_id,
            "producer_epoch": state.producer_epoch,
            "last_sequence": state.last_sequence,
            "last_timestamp_ms": state.last_timestamp_ms,
            "coordinator_epoch": state.coordinator_epoch,
            "transaction_start_offset": state.transaction_start_offset,
        }
        for partition, states in sorted(found.items())
        for state in states
    ]


async def hanging(admin: Admin, partitions: Collection[TopicPartition]) -> list[dict[str, Any]]:
    """Rows of `producers` whose transaction is open in the partition, and not at its coordinator."""
    rows = [row for row in await producers(admin, partitions) if row["transaction_start_offset"] is not None]
    if not rows:
        return []
    held = await _held(admin, {row["producer_id"] for row in rows})
    return [row for row in rows if (row["producer_id"], row["topic"], row["partition"]) not in held]


async def _held(admin: Admin, producer_ids: Iterable[int]) -> set[tuple[int, str, int]]:
    """What the coordinators know: a producer and a partition of its open transaction."""
    listed = await admin.transactions.list(producer_ids=producer_ids)
    described = await admin.transactions.describe_many([each.transactional_id for each in listed])
    return {(each.producer_id, *partition) for each in described.values() for partition in each.partitions}
