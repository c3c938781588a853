"""What a producer has to learn before it can send: where its topics are, and its own identity.

Each question is a task, asked once at a time, and again after a growing pause where it failed; what came of it is
written where it belongs, and the sender is woken to act on it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from math import inf
from typing import Any

from barnabas.client.client import Client
from barnabas.client.produce.identity import Identity
from barnabas.client.produce.producer_topics import ProducerTopic
from barnabas.core.errors import ErrorCode, KafkaError


class Lookups:
    def __init__(
        self,
        client: Client,
        identity: Identity,
        start: Callable[[Coroutine[Any, Any, None]], None],
        wake: Callable[[], None],
    ) -> None:
        self.identity_problem: KafkaError | None = None
        """Why there is no identity."""
        self._client = client
        self._identity = identity
        self._start = start
        self._wake = wake
        self._under_way: set[str] = set()
        self._is_obtaining = False
        self._identity_tries = 0
        self._identity_retry_at = 0.0

    def look_for(self, topic: ProducerTopic, now: float) -> float:
        """Ask about a topic; if it is too early for that, the time at which it is not."""
        if topic.name in self._under_way:
            return inf
        if topic.retry_at > now:
            return topic.retry_at
        self._under_way.add(topic.name)
        self._start(self._learn(topic))
        return inf

    async def _learn(self, topic: ProducerTopic) -> None:
        """A topic that the broker is about to create is unknown or leaderless for a moment."""
        metadata, clock = self._client.metadata, self._client.clock
        try:
            await metadata.refresh([topic.name], create=True)
            info = metadata.cluster.topics.get(topic.name)
            if info is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"nothing was said of topic {topic.name!r}")
            topic.learned(info, clock.monotonic())
            leaderless = [p.partition for p in info.partitions if p.leader not in metadata.cluster.brokers]
            if leaderless:
                message = f"partitions {leaderless} of {topic.name!r} have no leader"
                topic.problem = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message)
        except KafkaError as error:
            topic.problem = error
        finally:
            if topic.problem is None:
                topic.tries = 0
            else:
                topic.retry_at = clock.monotonic() + self._client.backoff_seconds(topic.tries)
                topic.tries += 1
            self._under_way.discard(topic.name)
            self._wake()

    def obtain_identity(self, now: float) -> float:
        """Ask for an identity; if it is too early for that, the time at which it is not."""
        if self._is_obtaining:
            return inf
        if self._identity_retry_at > now:
            return self._identity_retry_at
        self._is_obtaining = True
        self._start(self._obtain())
        return inf

    async def _obtain(self) -> None:
        try:
            await self._identity.obtain()
            self.identity_problem = None
            self._identity_tries = 0
        except KafkaError as error:
            self.identity_problem = error
            pause = self._client.backoff_seconds(self._identity_tries)
            self._identity_retry_at = self._client.clock.monotonic() + pause
            self._identity_tries += 1
        finally:
            self._is_obtaining = False
            self._wake()
