"""Wishes for other in-sync replicas: many in one request, each with its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from barnabas.broker.alter_partitions import AlterPartitions
from barnabas.cluster.events import AlteredPartition, AlterPartition
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages import k56_alter_partition as k56

TOPICS = (b"a" * 16, b"b" * 16)


class Controller:
    """Answers when it is let, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[k56.AlterPartitionRequest] = []
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.error = ErrorCode.NONE
        self.refused_partition = -1

    async def request(self, message: k56.AlterPartitionRequest, version: int) -> k56.AlterPartitionResponse:
        self.asked.append(message)
        self.is_asked.set()
        await self.may_answer.wait()
        if self.error:
            return k56.AlterPartitionResponse(error_code=self.error)
        return k56.AlterPartitionResponse(
            topics=[
                k56.ResponseTopicData(topic.topic_id, [self._result(partition) for partition in topic.partitions])
                for topic in message.topics
            ]
        )

    def _result(self, partition: k56.RequestPartitionData) -> k56.ResponsePartitionData:
        if partition.partition_index == self.refused_partition:
            return k56.ResponsePartitionData(partition.partition_index, ErrorCode.INELIGIBLE_REPLICA)
        isr = [member.broker_id for member in partition.new_isr_with_epochs]
        return k56.ResponsePartitionData(
            partition.partition_index, 0, 1, partition.leader_epoch, isr, 0, partition.partition_epoch + 1
        )


def wish(partition: int, topic: int = 0, broker_epoch: int = 7) -> AlterPartition:
    return AlterPartition(1, broker_epoch, TOPICS[topic], partition, 4, partition, ((1, 7), (2, 9)))


def answer(partition: int) -> AlteredPartition:
    return AlteredPartition(1, 4, (1, 2), partition + 1)


def run(story: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(10):
            await story

    asyncio.run(bounded())


def test_those_that_come_meanwhile_share_the_next_request() -> None:
    async def story() -> None:
        controller = Controller()
        wishes = AlterPartitions(controller.request)
        tasks = [asyncio.create_task(wishes.ask(wish(0)))]
        await controller.is_asked.wait()
        tasks += [asyncio.create_task(wishes.ask(wish(n, n % 2))) for n in range(1, 50)]
        await asyncio.sleep(0)
        controller.may_answer.set()
        assert await asyncio.gather(*tasks) == [answer(n) for n in range(50)]
        assert [sum(len(topic.partitions) for topic in each.topics) for each in controller.asked] == [1, 49]

    run(story())


def test_one_that_is_refused_leaves_the_others_alone() -> None:
    async def story() -> None:
        controller = Controller()
        controller.refused_partition = 1
        controller.may_answer.set()
        wishes = AlterPartitions(controller.request)
        first, second, third = await asyncio.gather(*(wishes.ask(wish(n)) for n in range(3)), return_exceptions=True)
        assert (first, third) == (answer(0), answer(2))
        assert isinstance(second, KafkaError)
        assert second.code is ErrorCode.INELIGIBLE_REPLICA

    run(story())


def test_a_request_that_is_refused_is_so_for_all() -> None:
    async def story() -> None:
        controller = Controller()
        controller.error = ErrorCode.NOT_CONTROLLER
        controller.may_answer.set()
        wishes = AlterPartitions(controller.request)
        for refused in await asyncio.gather(*(wishes.ask(wish(n)) for n in range(3)), return_exceptions=True):
            assert isinstance(refused, KafkaError)
            assert refused.code is ErrorCode.NOT_CONTROLLER

    run(story())


def test_processes_do_not_speak_for_each_other() -> None:
    async def story() -> None:
        controller = Controller()
        controller.may_answer.set()
        wishes = AlterPartitions(controller.request)
        await asyncio.gather(*(wishes.ask(wish(n, broker_epoch=epoch)) for epoch in (7, 8) for n in range(2)))
        assert [each.broker_epoch for each in controller.asked] == [7, 8]

    run(story())


def test_who_cannot_be_asked_is_an_error_for_those_who_asked_and_for_no_one_later() -> None:
    async def story() -> None:
        controller = Controller()

        async def broken(message: object, version: int) -> object:
            raise ConnectionError("gone")

        wishes = AlterPartitions(broken)
        with pytest.raises(ConnectionError):
            await wishes.ask(wish(0))
        wishes._request = controller.request
        controller.may_answer.set()
        assert await wishes.ask(wish(0)) == answer(0)

    run(story())
