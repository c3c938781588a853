"""Carries out what a group changes in its member's partitions, when the caller comes for records.

Of a partition that is to be given up, what the caller has not got yet is dropped, what it has moved past is committed,
then its callback runs, and only then the group hears that the partition is free.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.client.consume.positions import Begin

if TYPE_CHECKING:
    from barnabas.client.consume.commits import Commits
    from barnabas.client.consume.fetcher import Fetcher
    from barnabas.client.consume.reader import Reader
    from barnabas.client.group.member import GroupMember
    from barnabas.client.group.values import Change
    from barnabas.client.metadata import TopicPartition

Callback = Callable[[list["TopicPartition"]], Any]
"""Plain or async."""


class Callbacks(NamedTuple):
    on_assigned: Callback | None = None
    on_revoked: Callback | None = None
    on_lost: Callback | None = None


class GroupChanges:
    """`commits` is None where nothing is committed automatically."""

    def __init__(
        self, member: GroupMember, fetcher: Fetcher, reader: Reader, commits: Commits | None, callbacks: Callbacks
    ) -> None:
        self._member = member
        self._fetcher = fetcher
        self._reader = reader
        self._commits = commits
        self._callbacks = callbacks
        self._under_way: asyncio.Task[None] | None = None
        self._carried_out = asyncio.Event()

    async def watch(self) -> None:
        """Have a waiting caller wake, and one in the middle of a chunk come back after its record."""
        while True:
            await self._member.pending.wait()
            self._carried_out.clear()
            self._reader.set_aside()
            self._fetcher.arrived.set()
            await self._carried_out.wait()

    async def carry_out(self) -> None:
        """All that is pending. A change that was begun is carried out to its end, also if the caller is cancelled."""
        while True:
            if self._under_way is None:
                change = self._member.take_change()
                if change is None:
                    self._carried_out.set()
                    return
                self._under_way = asyncio.create_task(self._carry_out(change))
            task = self._under_way
            try:
                await asyncio.shield(task)
            finally:
                if task.done():
                    self._under_way = None

    async def finish(self) -> None:
        """Carry out what was begun, and give up everything."""
        if self._under_way is not None:
            try:
                await self._under_way
            finally:
                self._under_way = None
        await self.give_up(list(self._fetcher.states))

    async def _carry_out(self, change: Change) -> None:
        try:
            await self.give_up(change.revoked, change.lost)
            await self._begin(change.assigned)
        finally:
            self._member.done(change)
            self._fetcher.pump()

    async def give_up(self, revoked: Sequence[TopicPartition], lost: Sequence[TopicPartition] = ()) -> None:
        gone = [*revoked, *lost]
        if not gone:
            return
        self._reader.set_aside()
        for partition in gone:
            self._fetcher.stop(partition)
        try:
            if revoked and self._commits is not None:
                await self._commits.commit_passed(revoked)
            await _call(self._callbacks.on_revoked, revoked)
            await _call(self._callbacks.on_lost or self._callbacks.on_revoked, lost)
        finally:
            for partition in gone:
                self._fetcher.remove(partition)
            if self._commits is not None:
                self._commits.forget(gone)

    async def _begin(self, assigned: Sequence[TopicPartition]) -> None:
        for partition in assigned:
            self._fetcher.add(partition, Begin.COMMITTED)
            self._fetcher.states[partition].is_held = True
        try:
            await _call(self._callbacks.on_assigned, assigned)
        finally:
            for partition in assigned:
                if partition in self._fetcher.states:
                    self._fetcher.states[partition].is_held = False


async def _call(callback: Callback | None, partitions: Sequence[TopicPartition]) -> None:
    if callback is not None and partitions:
        result = callback(list(partitions))
        if inspect.isawaitable(result):
            await result
