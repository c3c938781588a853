"""Reading a topic to its end, or for ever: what `consume` prints and `bench` measures."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Literal

import typer

from barnabas.cli.places import offsets_at
from barnabas.cli.progress import Unit, file_bytes, progress
from barnabas.cli.record_printer import Print
from barnabas.client.client import Client
from barnabas.client.consume.consumed import ConsumerRecord
from barnabas.client.consumer import Consumer
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import Beginning, End, OffsetSpec

_MOST_AT_ONCE = 10_000


@asynccontextmanager
async def open_consumer(
    client: Client,
    partitions: Sequence[TopicPartition],
    place: OffsetSpec,
    group: str | None,
    isolation: Literal["read_uncommitted", "read_committed"],
) -> AsyncIterator[Consumer]:
    """A consumer of the partitions from a place on, or a member of a group for their topic, which begins there."""
    if group is None:
        # What retention deletes under a slow reader is gone; it goes on with the first record that is left.
        async with Consumer(client, isolation_level=isolation, auto_offset_reset="earliest") as consumer:
            consumer.assign(await offsets_at(client, partitions, place))
            yield consumer
        return
    if not isinstance(place, Beginning | End):
        raise typer.BadParameter("with --group it is beginning or end: where a new group begins", param_hint="--offset")
    member = Consumer(
        client,
        topics={partition.topic for partition in partitions},
        group=group,
        auto_offset_reset="earliest" if isinstance(place, Beginning) else "latest",
        enable_auto_commit=False,
        isolation_level=isolation,
    )
    async with member:
        yield member


async def print_records(
    consumer: Consumer, show: Print, *, follow: bool, limit: int | None, commit: bool = False
) -> None:
    """Print what is read; `commit` commits it once it is printed."""
    ends = Ends(consumer)
    total = None if follow or commit or file_bytes(sys.stdout.fileno()) is None else await ends.left()
    done = 0
    with progress("reading", total, Unit.RECORDS) as on_progress:
        async for records in read(consumer, None if follow else ends, limit):
            show(records)
            done += len(records)
            on_progress(done)
            if commit:
                await consumer.commit()


async def read(consumer: Consumer, ends: Ends | None, limit: int | None) -> AsyncIterator[list[ConsumerRecord]]:
    """Records as they come, until every partition has reached its end, if there are ends, or `limit` are read."""
    left = sys.maxsize if limit is None else limit
    while left and not (ends is not None and await ends.are_reached()):
        if records := await consumer.poll(max_records=min(left, _MOST_AT_ONCE)):
            yield records
            left -= len(records)


class Ends:
    """Where each partition ended when it was first seen; one that has reached its end is paused.

    What a group assigns comes and goes; who has no partition waits for one.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._ends: dict[TopicPartition, int] = {}

    async def left(self) -> int:
        """How many records are to be read, as far as offsets tell."""
        await self._look()
        return sum([max(0, self._ends[each] - await self._consumer.position(each)) for each in self._assigned()])

    async def are_reached(self) -> bool:
        await self._look()
        open_ = set(self._assigned()) - set(self._consumer.paused())
        reached = [each for each in open_ if await self._consumer.position(each) >= self._ends[each]]
        if reached:
            self._consumer.pause(*reached)
        return bool(self._assigned()) and open_ == set(reached)

    async def _look(self) -> None:
        if new := [each for each in self._assigned() if each not in self._ends]:
            self._ends.update(await self._consumer.end_offsets(*new))

    def _assigned(self) -> list[TopicPartition]:
        return self._consumer.assignment()
