"""Where a group is to go on: in which partitions, from which offsets to which, and which are refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from barnabas.cli.output import counted, fail
from barnabas.cli.places import check_offset
from barnabas.cli.session import choose_partitions
from barnabas.client.admin.admin import Admin
from barnabas.client.admin.offsets import OffsetReset
from barnabas.client.list_offsets import EARLIEST, LATEST
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import Absolute, OffsetSpec
from barnabas.core.errors import ErrorCode, KafkaError

Moves = Mapping[TopicPartition, OffsetReset]


async def choose(admin: Admin, group: str, topics: Sequence[str], indexes: Sequence[int]) -> list[TopicPartition]:
    """The partitions of the topics, or all that the group has committed."""
    if topics:
        found = [await admin.topics.describe(topic) for topic in topics]
        return [partition for topic in found for partition in choose_partitions(topic, indexes)]
    committed = await admin.offsets.list(group)
    if not committed:
        fail(f"group {group!r} has committed nothing; is the name right? --topic lets it begin with a topic")
    return list(committed)


async def placed(admin: Admin, group: str, partitions: Collection[TopicPartition], place: OffsetSpec) -> Moves:
    moves = await admin.offsets.reset(group, place, partitions, dry_run=True)
    if isinstance(place, Absolute):
        first, end = await _edges(admin, partitions)
        for partition in partitions:
            check_offset(partition, place.offset, first[partition], end[partition])
    return moves


async def shifted(admin: Admin, group: str, partitions: Collection[TopicPartition], by: int) -> Moves:
    first, end = await _edges(admin, partitions)
    committed = await admin.offsets.list(group, partitions)
    for partition in partitions:
        if partition not in committed:
            fail(f"group {group!r} has committed nothing in {partition} to shift from; nothing was changed")
    return {
        partition: OffsetReset(before.offset, min(max(before.offset + by, first[partition]), end[partition]))
        for partition, before in committed.items()
    }


async def _edges(
    admin: Admin, partitions: Collection[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The first offset of each partition, and that behind its last."""
    first = await admin.partitions.list_offsets(dict.fromkeys(partitions, EARLIEST))
    end = await admin.partitions.list_offsets(dict.fromkeys(partitions, LATEST))
    return {each: found.offset for each, found in first.items()}, {each: found.offset for each, found in end.items()}


async def carry_out(admin: Admin, group: str, moves: Moves) -> None:
    try:
        members = (await admin.groups.describe(group)).members
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        members = ()  # it comes to be with the offsets that it gets here
    if members:
        fail(f"group {group!r} has {counted(len(members), 'member')}; stop its consumers first; nothing was changed")
    await admin.offsets.alter(group, {partition: move.after for partition, move in moves.items()})


def rows(moves: Moves) -> list[dict[str, object]]:
    return [
        {"topic": partition.topic, "partition": partition.partition, "before": move.before, "after": move.after}
        for partition, move in sorted(moves.items())
    ]
