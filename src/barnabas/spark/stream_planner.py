"""How a stream goes on: where a query begins, how far the next micro-batch goes, and what its tasks read.

Whatever is decided is in the places that Spark keeps in its checkpoint, so a planner can be lost at any time, and the
next one goes on from there.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from barnabas.core.ids import uuid_text
from barnabas.spark.admission import Patience, within
from barnabas.spark.cluster import find_partitions
from barnabas.spark.data_loss import Cause, Loss, find_losses, report
from barnabas.spark.group_commits import GroupCommits
from barnabas.spark.offsets import resolve_limit
from barnabas.spark.ranges import OffsetRange, split_ranges
from barnabas.spark.stream_places import Place
from barnabas.spark.stream_sight import Lookout, Sight

if TYPE_CHECKING:
    from barnabas.client.client import Client
    from barnabas.client.metadata import TopicPartition
    from barnabas.spark.options import ReadOptions


class StreamPlanner:
    """Owned by the loop of its client, which stays open between the calls."""

    def __init__(self, client: Client, options: ReadOptions) -> None:
        self._client = client
        self._options = options
        self._lookout = Lookout(client, options.topics, options.isolation)
        self._patience = Patience(options.min_offsets_per_trigger, options.max_trigger_delay_ms, client.clock.monotonic)
        self._commits: GroupCommits | None = None
        self._told: set[Loss] = set()
        """Of partitions that are not there: they are missed again and again."""
        self._target: Sight | None = None
        self.latest_ends: Mapping[TopicPartition, int] | None = None
        """Where the partitions ended when they were last looked at."""

    async def initial(self) -> Place:
        """Where a new query begins."""
        partitions = await find_partitions(self._client, self._options.topics)
        offsets = await resolve_limit(self._client, partitions, self._options.starting, self._options.isolation)
        metadata = self._client.metadata
        return Place(
            offsets,
            {each: metadata.leader_epoch(each) for each in offsets},
            {each.topic: uuid_text(metadata.cluster.topics[each.topic].topic_id) for each in offsets},
            self._group(None).group,
        )

    async def stop_at_now(self) -> None:
        """From here on act as if nothing came in any more, so that the stream has an end."""
        self._target = await self._lookout.look()

    async def latest(self, start: Place, *, is_limited: bool) -> Place:
        """The end of the batch that begins at `start`: `start` itself if there is nothing to read, or not yet.

        All that lies before `start` is done, which is the moment to show it in the group.
        """
        sight = self._target or await self._lookout.look(start.offsets)
        self.latest_ends = sight.ends
        there = {each: start.offsets[each] for each in sight.ends.keys() & start.offsets if start.is_same(each, sight)}
        await self._group(start).commit(there)
        end = await self._all_there_is(start, sight)
        if is_limited:
            end = await self._admitted(start, end)
        return start if (end.offsets, end.topic_ids) == (start.offsets, start.topic_ids) else end

    async def plan(self, start: Place, end: Place) -> list[OffsetRange]:
        """What the tasks of a batch read."""
        moved = {
            each: offset
            for each, offset in end.offsets.items()
            if start.offsets.get(each) != offset or not start.is_same(each, end)
        }
        batch = replace(end, offsets=moved)
        ranges, losses = find_losses(start, batch, await self._lookout.now(start, batch))
        report(losses, fail=self._options.fail_on_data_loss)
        return split_ranges(
            ranges,
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )

    async def _all_there_is(self, start: Place, sight: Sight) -> Place:
        """The end of a batch without limits."""
        self._lookout.check(sight, start.offsets)
        fates = {each: self._fate(each, start, sight) for each in start.offsets.keys() - sight.ends.keys()}
        losses = {Loss(each, cause, start.offsets[each]) for each, cause in fates.items() if cause is not None}
        report(sorted(losses - self._told, key=lambda loss: loss.partition), fail=self._options.fail_on_data_loss)
        self._told = losses
        # A topic that is gone keeps its place: if it comes back it is known to be another one.
        waiting = {each for each, cause in fates.items() if cause in (None, Cause.DELETED)}
        kept = waiting | await self._unmoved(start, sight)
        kept_ids = {each.topic: start.topic_ids[each.topic] for each in kept if each.topic in start.topic_ids}
        return Place(
            {**sight.ends, **{each: start.offsets[each] for each in kept}},
            {**sight.epochs, **{each: start.epoch(each) for each in kept}},
            {**kept_ids, **sight.topic_ids},
            self._group(start).group,
        )

    def _fate(self, partition: TopicPartition, start: Place, sight: Sight) -> Cause | None:
        """Why a partition is not there that was; None where that may pass."""
        if not self._lookout.is_read(partition):
            return Cause.NOT_READ
        if partition.topic not in sight.topic_ids:
            return Cause.DELETED
        return None if start.is_same(partition, sight) else Cause.RECREATED

    async def _unmoved(self, start: Place, sight: Sight) -> set[TopicPartition]:
        """The partitions that stay where they are, with the epoch of that time: nothing has come in.

        One whose new leader does not yet know how far it may let others read seems to go back, and does not.
        """
        same = {each for each in start.offsets.keys() & sight.ends if start.is_same(each, sight)}
        behind = [each for each in same if sight.ends[each] < start.offsets[each]]
        epoch_ends = await self._lookout.epoch_ends(start, behind) if behind else {}
        return {
            each
            for each in same
            if sight.ends[each] == start.offsets[each] or epoch_ends.get(each, -1) >= start.offsets[each]
        }

    async def _admitted(self, start: Place, end: Place) -> Place:
        """As much of it as the limits of a trigger allow."""
        begun = {each: offset for each, offset in start.offsets.items() if start.is_same(each, end)}
        fresh = end.offsets.keys() - begun.keys()
        starts = {**begun, **(await self._lookout.beginnings(fresh) if fresh else {})}
        ends = {each: offset for each, offset in end.offsets.items() if each in starts}
        available = sum(max(0, offset - starts[each]) for each, offset in ends.items())
        if self._target is None and available and not self._patience.is_ready(available):
            return start
        highest = self._options.max_offsets_per_trigger
        return end if highest is None else replace(end, offsets={**end.offsets, **within(highest, starts, ends)})

    def _group(self, start: Place | None) -> GroupCommits:
        """The one that the options name; else one of the query's own, whose name is in its checkpoint."""
        if self._commits is None:
            known = self._options.group or (start.group if start else None)
            self._commits = GroupCommits(self._client, known or f"{self._options.group_prefix}-{uuid.uuid4()}")
        return self._commits
