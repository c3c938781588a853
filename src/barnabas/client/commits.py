"""Committing for a group: by call, and by itself what the caller has moved past."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING

from barnabas.core.errors import KafkaError

if TYPE_CHECKING:
    from barnabas.client.group.member import GroupMember
    from barnabas.client.group.values import OffsetAndMetadata
    from barnabas.client.metadata import TopicPartition

log = logging.getLogger(__name__)

Offsets = Mapping["TopicPartition", "OffsetAndMetadata"]


class Commits:
    """Remembers what is committed, so that a partition which stands still costs nothing."""

    def __init__(self, member: GroupMember, passed: Callable[[], Offsets], given: Callable[[], Offsets]) -> None:
        self._member = member
        self._passed = passed
        self._given = given
        self._committed: dict[TopicPartition, int] = {}

    async def commit(self, offsets: Offsets) -> None:
        if offsets:
            await self._member.commit(offsets)
            self._committed.update({partition: place.offset for partition, place in offsets.items()})

    async def commit_passed(self, partitions: Container[TopicPartition] | None = None) -> None:
        """What the caller has moved past, in all or some partitions; a failure is logged, for nobody waits.

        A commit by call that covers what the caller has at hand is not taken back.
        """
        given = self._given()
        offsets = {
            partition: place
            for partition, place in self._passed().items()
            if (partitions is None or partition in partitions)
            and not place.offset <= self._committed.get(partition, -1) <= given[partition].offset
        }
        try:
            await self.commit(offsets)
        except KafkaError as error:
            log.warning("an automatic commit failed: %s", error)

    async def every(self, interval_ms: int) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            await self.commit_passed()

    def forget(self, partitions: Container[TopicPartition]) -> None:
        """Others may commit for these from now on."""
        self._committed = {p: offset for p, offset in self._committed.items() if p not in partitions}
