"""Which partitions a consumer reads, and from where: the half of it that needs neither records nor a group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from barnabas.client.consume.positions import Begin, PartitionState
from barnabas.client.list_offsets import resolve_offsets
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import Beginning, End, OffsetSpec, Since
from barnabas.client.options import at_least

if TYPE_CHECKING:
    from barnabas.client.consume.fetch_options import FetchOptions
    from barnabas.client.consume.fetcher import Fetcher
    from barnabas.client.consume.reader import Reader
    from barnabas.client.group.values import Subscription
    from barnabas.client.session import Session


class ConsumerPlaces:
    """Fetcher and reader are there from the time that the consumer is entered."""

    _session: Session
    _options: FetchOptions
    _subscription: Subscription | None
    _fetcher: Fetcher
    _reader: Reader

    def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int]) -> None:
        """Read these and no others, each from an offset if one is given, else where its place is found."""
        self._session.check()
        if self._subscription is not None:
            raise RuntimeError("this consumer subscribes to topics; make one without `topics` and `pattern` to assign")
        offsets = partitions if isinstance(partitions, Mapping) else {}
        wanted = list(partitions)
        self._reader.set_aside()
        for partition in self._fetcher.states.keys() - set(wanted):
            self._fetcher.remove(partition)
        for partition in wanted:
            if partition in offsets or partition not in self._fetcher.states:
                self._fetcher.add(partition, Begin.COMMITTED, offsets.get(partition))
        self._fetcher.moved(wanted)

    async def assign_at(self, partitions: Iterable[TopicPartition], place: OffsetSpec) -> None:
        """Read these partitions and no others, each from a place such as `Beginning()` or `Last(10)`."""
        client = self._session.check()
        self.assign(await resolve_offsets(client, partitions, place, self._options.isolation_level))

    def unassign(self, partition: TopicPartition) -> None:
        """Read this one no more."""
        self._session.check()
        self._fetcher.remove(partition)

    def assignment(self) -> list[TopicPartition]:
        self._session.check()
        return sorted(self._fetcher.states)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from an offset."""
        self._session.check()
        state = self._state(partition)
        state.place(at_least("offset", offset, 0))
        self._moved([partition])

    async def seek_to(self, place: OffsetSpec, *partitions: TopicPartition) -> None:
        """Go on from a place such as `Beginning()`, `End()`, `Since(ms)`, `Last(10)`, in these partitions or in all."""
        client = self._session.check()
        wanted = self._chosen(partitions)
        offsets = await resolve_offsets(client, wanted, place, self._options.isolation_level)
        for partition, offset in offsets.items():
            if partition in self._fetcher.states:
                self._state(partition).place(offset)
        self._moved(offsets)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        await self.seek_to(Beginning(), *partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        await self.seek_to(End(), *partitions)

    async def seek_to_time(self, time: int | datetime, *partitions: TopicPartition) -> None:
        """Go on from the first record since a time (milliseconds since 1970, or a date), else from the end."""
        timestamp_ms = int(time.timestamp() * 1000) if isinstance(time, datetime) else time
        await self.seek_to(Since(timestamp_ms), *partitions)

    def rewind(self, *partitions: TopicPartition) -> None:
        """Go back to the committed offset, in these partitions or in all, and read what came since then again."""
        self._session.check()
        chosen = self._chosen(partitions)
        for partition in chosen:
            self._state(partition).displace(Begin.COMMITTED)
        self._moved(chosen)

    def _moved(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._reader.forget(partition)
        self._fetcher.moved(partitions)

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the record that comes next."""
        self._session.check()
        while (position := self._state(partition).position) is None:
            self._session.check()
            self._fetcher.raise_problem()
            if self._state(partition).is_held:
                self._state(partition).is_held = False
                self._fetcher.pump()
            await self._fetcher.wait(None)
        return position

    async def beginning_offsets(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """Where these partitions, or all assigned ones, begin now."""
        client = self._session.check()
        return await resolve_offsets(client, self._chosen(partitions), Beginning(), self._options.isolation_level)

    async def end_offsets(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """Where these partitions, or all assigned ones, end now, as far as this consumer may read."""
        client = self._session.check()
        return await resolve_offsets(client, self._chosen(partitions), End(), self._options.isolation_level)

    async def lag(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """How far behind the end the position is, in these partitions or in all."""
        ends = await self.end_offsets(*partitions)
        return {partition: max(0, end - await self.position(partition)) for partition, end in ends.items()}

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these partitions, or of all, until `resume`."""
        self._session.check()
        self._reader.set_aside()
        for partition in self._chosen(partitions):
            self._state(partition).paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        self._session.check()
        chosen = self._chosen(partitions)
        for partition in chosen:
            self._fetcher.resume(self._state(partition))
        self._fetcher.moved(chosen)

    def paused(self) -> list[TopicPartition]:
        self._session.check()
        return sorted(partition for partition, state in self._fetcher.states.items() if state.paused)

    def _chosen(self, partitions: tuple[TopicPartition, ...]) -> list[TopicPartition]:
        return list(partitions or self._fetcher.states)

    def _state(self, partition: TopicPartition) -> PartitionState:
        state = self._fetcher.states.get(partition)
        if state is None:
            raise ValueError(f"{partition} is not assigned to this consumer; it has {self.assignment() or 'none'}")
        return state
