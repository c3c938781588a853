"""All partitions of some topics, for a consumer that reads them without a group, and the new ones as they appear."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.client.metadata import TopicPartition, topic_error
from barnabas.core.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.client.client import Client
    from barnabas.client.group.values import Subscription

log = logging.getLogger(__name__)

Tell = Callable[[set[TopicPartition]], None]
_LOOK_FOR_MISSING_SECONDS = 1.0


class TopicWatch:
    """Looks at the cluster again and again, and more often while a topic that was asked for by name is not there."""

    def __init__(self, client: Client, subscription: Subscription, max_age_ms: int) -> None:
        self._client = client
        self._topics = subscription.topics
        self._pattern = None if subscription.pattern is None else re.compile(subscription.pattern)
        self._interval = max_age_ms / 1000
        self._missing: frozenset[str] = frozenset()

    async def partitions(self) -> set[TopicPartition]:
        """What there is to read now."""
        metadata = self._client.metadata
        if self._pattern is not None:
            found = [t for t in await metadata.all_topics() if not t.is_internal and self._pattern.fullmatch(t.name)]
        else:
            try:
                await metadata.refresh(self._topics)
            except KafkaError as error:
                if not error.retriable:
                    raise
            found = [topic for name, topic in metadata.cluster.topics.items() if name in self._topics]
            self._missing = self._topics - {topic.name for topic in found}
        return {TopicPartition(topic.name, index) for topic in found for index in range(len(topic.partitions))}

    async def watch(
        self, tell: Callable[[set[TopicPartition]], None], complain: Callable[[str, KafkaError], None]
    ) -> None:
        clock, patience = self._client.clock, self._client.retry_timeout_ms / 1000
        missing_since = clock.monotonic()
        while True:
            await asyncio.sleep(min(self._interval, _LOOK_FOR_MISSING_SECONDS) if self._missing else self._interval)
            try:
                tell(await self.partitions())
            except KafkaError as error:
                log.warning("cannot look for new partitions: %s", error)
            if not self._missing:
                missing_since = clock.monotonic()
            elif clock.monotonic() - missing_since > patience:
                missing_since = clock.monotonic()
                name = min(self._missing)
                complain(name, topic_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name))
