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
    """Remembers what is committed, and where the caller stood then: one that stands still costs nothing."""

    def __init__(self, member: GroupMember, passed: Callable[[], Offsets], given: Callable[[], Offsets]) -> None:
        self._member = member
        self._passed = passed
        self._given = given
        self._committed: dict[TopicPartition, int] = {}
        self._stood: dict[TopicPartition, int | None] = {}
        """What was moved past at the last commit; None if the place was not known yet."""

    async def commit(self, offsets: Offsets) -> None:
        if offsets:
            passed = self._passed()
            await self._member.commit(offsets)
            for partition, place in offsets.items():
                self._committed[partition] = place.offset
                self._stood[partition] = passed[partition].offset if partition in passed else None

    async def commit_passed(self, partitions: Container[TopicPartition] | None = None) -> None:
        """What the caller has moved past, in all or some partitions; a failure is logged, for nobody waits."""
        passed, given = self._passed(), self._given()
        offsets = {
            partition: place
            for partition, place in passed.items()
            if (partitions is None or partition in partitions)
            and self._has_moved(partition, place.offset, given[partition].offset)
        }
        try:
            await self.commit(offsets)
        except KafkaError as error:
            log.warning("an automatic commit failed: %s", error)

    def _has_moved(self, partition: TopicPartition, passed: int, given: int) -> bool:
        """Since the last commit. One by call, of what the caller has at hand or of any other place, is not undone."""
        if partition not in self._committed:
            return True
        stood = self._stood[partition]
        if stood is None:
            self._stood[partition] = passed
            return False
        return passed != stood and not passed <= self._committed[partition] <= given

    async def every(self, interval_ms: int) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            await self.commit_passed()

    def forget(self, partitions: Container[TopicPartition]) -> None:
        """Others may commit for these from now on."""
        self._committed = {p: offset for p, offset in self._committed.items() if p not in partitions}
        self._stood = {p: offset for p, offset in self._stood.items() if p not in partitions}
