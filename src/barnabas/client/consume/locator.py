"""Where to begin in partitions that have no place yet: at the committed offset, or as the reset option says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from barnabas.client.consume.consumer_errors import NoOffset
from barnabas.client.consume.positions import Begin, PartitionState
from barnabas.client.group.values import OffsetAndMetadata
from barnabas.client.list_offsets import EARLIEST, LATEST, list_offsets
from barnabas.core.errors import KafkaError

if TYPE_CHECKING:
    from barnabas.client.client import Client
    from barnabas.client.consume.fetch_options import FetchOptions
    from barnabas.client.metadata import TopicPartition

Committed = Callable[[Iterable["TopicPartition"]], Awaitable[Mapping["TopicPartition", OffsetAndMetadata | None]]]
Places = dict["TopicPartition", OffsetAndMetadata | KafkaError]

_TIMES = {"earliest": EARLIEST, "latest": LATEST}


class Locator:
    """`committed` is the group's knowledge; None for a consumer without a group."""

    def __init__(self, client: Client, options: FetchOptions, committed: Committed | None) -> None:
        self._client = client
        self._options = options
        self._committed = committed

    async def find(self, states: Sequence[PartitionState]) -> Places:
        """A place for each, or why there is none."""
        try:
            places = await self._committed_places([s.partition for s in states if s.begin is Begin.COMMITTED])
            left = [state for state in states if state.partition not in places]
            return {**places, **await self._reset_places(left)}
        except KafkaError as error:
            return {state.partition: error for state in states}

    async def _committed_places(self, partitions: list[TopicPartition]) -> Places:
        if self._committed is None or not partitions:
            return {}
        committed = await self._committed(partitions)
        return {partition: place for partition, place in committed.items() if place is not None}

    async def _reset_places(self, states: list[PartitionState]) -> Places:
        reset = self._options.auto_offset_reset
        times: dict[TopicPartition, int] = {}
        places: Places = {}
        for state in states:
            if state.begin is Begin.EARLIEST:
                times[state.partition] = EARLIEST
            elif reset == "none":
                places[state.partition] = NoOffset(state.partition, state.position)
            else:
                times[state.partition] = _TIMES[reset]
        if times:
            found = await list_offsets(self._client, times, self._options.isolation_level)
            places.update({partition: OffsetAndMetadata(answer.offset) for partition, answer in found.items()})
        return places
