"""The offsets of a stream in a consumer group, where every Kafka tool shows its lag.

Spark's checkpoint is the truth, and nothing is ever read back from the group: a commit that fails is a warning, and is
tried again a little later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from barnabas.client.admin.offsets import Offsets
from barnabas.client.client import Client
from barnabas.client.metadata import TopicPartition
from barnabas.core.errors import KafkaError

log = logging.getLogger(__name__)

_PATIENCE_S = 5.0
"""A coordinator that does not answer holds the stream up no longer than this."""
_PAUSE_S = 5.0
"""After a failure."""


class GroupCommits:
    """Owned by the loop of its client."""

    def __init__(self, client: Client, group: str) -> None:
        self.group = group
        self._client = client
        self._committed: Mapping[TopicPartition, int] = {}
        self._not_before = 0.0
        self._told = ""

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit what has changed since the last time."""
        changed = {each: offset for each, offset in offsets.items() if self._committed.get(each) != offset}
        if not changed or self._client.clock.monotonic() < self._not_before:
            return
        try:
            await asyncio.wait_for(Offsets(self._client).alter(self.group, changed), _PATIENCE_S)
        except (KafkaError, TimeoutError) as error:
            self._failed(error)
        else:
            self._committed = {**self._committed, **changed}
            self._told = ""

    def _failed(self, error: Exception) -> None:
        self._not_before = self._client.clock.monotonic() + _PAUSE_S
        why = str(error) or f"its coordinator did not answer within {_PATIENCE_S:.0f} s"
        if why != self._told:
            log.warning("the lag that group %r shows is out of date, the stream goes on: %s", self.group, why)
        self._told = why
