"""Wishes for other in-sync replicas, on their way to a controller elsewhere.

After a broker has come back, leaders may have thousands of them. Those that arrive while a request is under way join
the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import groupby
from typing import Any

from barnabas.cluster.events import AlteredPartition, AlterPartition
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k56_alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)

VERSION = 3
_MOST_AT_ONCE = 1000

Wish = tuple[AlterPartition, "asyncio.Future[AlteredPartition]"]


class AlterPartitions:
    """`request` takes a message and a version, and may raise what its askers are to get."""

    def __init__(self, request: Callable[[Any, int], Coroutine[Any, Any, Any]]) -> None:
        self._request = request
        self._waiting: list[Wish] = []
        self._sending: asyncio.Task[None] | None = None

    async def ask(self, event: AlterPartition) -> AlteredPartition:
        answer: asyncio.Future[AlteredPartition] = asyncio.get_running_loop().create_future()
        self._waiting.append((event, answer))
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())
        return await answer

    async def _send(self) -> None:
        try:
            while self._waiting:
                # All of a request must come from the same process of the broker, in its own words.
                _, same = next(groupby(self._waiting[:_MOST_AT_ONCE], key=_sender))
                batch = list(same)
                del self._waiting[: len(batch)]
                await self._send_batch(batch)
        finally:
            self._sending = None
            for _, answer in self._waiting:
                answer.cancel()

    async def _send_batch(self, batch: list[Wish]) -> None:
        try:
            response = await self._request(_request([event for event, _ in batch]), VERSION)
        except asyncio.CancelledError:
            for _, answer in batch:
                answer.cancel()
            raise
        except Exception as error:
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            return
        results = _results(response)
        for event, answer in batch:
            result = results.get((event.topic_id, event.partition))
            code = ErrorCode(
                response.error_code or (ErrorCode.UNKNOWN_SERVER_ERROR if result is None else result.error_code)
            )
            if answer.done():
                continue
            if code or result is None:
                answer.set_exception(KafkaError(code, f"the controller refuses another ISR: {code.name}"))
            else:
                answer.set_result(
                    AlteredPartition(
                        result.leader_id,
                        result.leader_epoch,
                        tuple(result.isr),
                        result.partition_epoch,
                        result.leader_recovery_state,
                    )
                )

    def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()


def _sender(wish: Wish) -> tuple[int, int]:
    return wish[0].broker_id, wish[0].broker_epoch


def _request(events: list[AlterPartition]) -> AlterPartitionRequest:
    topics: dict[bytes, RequestTopicData] = {}
    for event in events:
        topic = topics.setdefault(event.topic_id, RequestTopicData(event.topic_id))
        topic.partitions.append(
            RequestPartitionData(
                event.partition,
                event.leader_epoch,
                [],
                [BrokerState(broker_id, epoch) for broker_id, epoch in event.new_isr],
                event.leader_recovery_state,
                event.partition_epoch,
            )
        )
    return AlterPartitionRequest(events[0].broker_id, events[0].broker_epoch, list(topics.values()))


def _results(response: AlterPartitionResponse) -> dict[tuple[bytes, int], ResponsePartitionData]:
    return {
        (topic.topic_id, partition.partition_index): partition
        for topic in response.topics
        for partition in topic.partitions
    }
