"""Offsets that a user names, held against what the partitions hold."""

from __future__ import annotations

from collections.abc import Collection

from barnabas.cli.output import fail
from barnabas.client.client import Client
from barnabas.client.list_offsets import resolve_offsets
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import Absolute, Beginning, End, OffsetSpec


async def offsets_at(
    client: Client, partitions: Collection[TopicPartition], place: OffsetSpec
) -> dict[TopicPartition, int]:
    """The offset of a place in each partition; one that a partition does not hold ends the command."""
    if isinstance(place, Absolute):
        first = await resolve_offsets(client, partitions, Beginning())
        end = await resolve_offsets(client, partitions, End())
        for partition in partitions:
            check_offset(partition, place.offset, first[partition], end[partition])
    return await resolve_offsets(client, partitions, place)


def check_offset(partition: TopicPartition, offset: int, first: int, end: int) -> None:
    """The end is one too: that of the record that will come next."""
    if not first <= offset <= end:
        holds = f"it holds {first} to {end - 1}" if first < end else f"it is empty, and goes on with {end}"
        fail(f"{partition} has no offset {offset}: {holds}; nothing was done")
