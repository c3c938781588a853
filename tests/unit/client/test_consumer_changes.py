"""How a consumer carries out what its group changes: in which order, and to the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

import pytest

from barnabas.client import consumer as consumer_module
from barnabas.client.consumer import Consumer
from barnabas.client.group.values import Change, OffsetAndMetadata
from barnabas.client.metadata import TopicPartition
from tests.unit.client.test_fetcher import PARTITION, Script, ScriptedClient, answer, batch


class Group:
    """Stands in for the membership; all that it and the callbacks hear is in `heard`."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.pending = asyncio.Event()
        self._changes: list[Change] = []

    def change(self, **fields: tuple[TopicPartition, ...]) -> None:
        self._changes.append(Change(**fields))
        self.pending.set()

    def take_change(self) -> Change | None:
        self.pending.clear()
        return self._changes.pop(0) if self._changes else None

    def done(self, change: Change) -> None:
        self.heard.append("done")

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.heard.append({partition.partition: place.offset for partition, place in offsets.items()})

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return {partition: OffsetAndMetadata(0) for partition in partitions}

    def polled(self) -> None: ...

    def raise_problem(self) -> None: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...


Scene = Callable[[Consumer, Group], Awaitable[None]]
Play = Callable[..., Group]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    def run(scene: Scene, **callbacks: Any) -> Group:
        groups: list[Group] = []

        def member(*_: Any) -> Group:
            groups.append(Group())
            return groups[0]

        monkeypatch.setattr(consumer_module, "GroupMember", member)

        def note(name: str, _: list[TopicPartition]) -> None:
            groups[0].heard.append(name)

        async def session() -> None:
            client = ScriptedClient(Script(answer(batch(0, 10))))
            noted = {name: partial(note, name) for name in ("on_assigned", "on_revoked")}
            consumer = Consumer(client, topics=["orders"], group="g", **{**noted, **callbacks})
            async with asyncio.timeout(20), consumer:
                groups[0].change(assigned=(PARTITION,))
                await scene(consumer, groups[0])

        asyncio.run(session())
        return groups[0]

    return run


def test_a_partition_is_drained_and_committed_before_it_is_given_up(play: Play) -> None:
    async def scene(consumer: Consumer, group: Group) -> None:
        async for record in consumer:
            if record.offset == 3:
                group.heard.clear()
                group.change(revoked=(PARTITION,))
                await asyncio.sleep(0.01)  # the group's word reaches us in the middle of what was fetched
                assert group.heard == []
                break
        assert await consumer.poll(10) == []
        assert consumer.assignment() == []

    assert play(scene).heard == [{0: 4}, "on_revoked", "done"]


def test_a_callback_can_ask_for_the_place_and_choose_another(play: Play) -> None:
    found: list[int] = []

    async def scene(consumer: Consumer, group: Group) -> None:
        consumers.append(consumer)
        assert [record.offset for record in await consumer.poll(5000, max_records=2)] == [6, 7]

    consumers: list[Consumer] = []

    async def assigned(partitions: list[TopicPartition]) -> None:
        found.append(await consumers[0].position(partitions[0]))
        consumers[0].seek(partitions[0], 6)

    play(scene, on_assigned=assigned)
    assert found == [0]


def test_of_a_lost_partition_nothing_is_committed(play: Play) -> None:
    async def scene(consumer: Consumer, group: Group) -> None:
        await consumer.poll(5000, max_records=4)
        group.heard.clear()
        group.change(lost=(PARTITION,))
        assert await consumer.poll(10) == []

    assert play(scene).heard == ["on_revoked", "done"]


def test_a_cancelled_caller_does_not_stop_a_change_half_way(play: Play) -> None:
    finish: list[asyncio.Event] = []

    async def slow(_: list[TopicPartition]) -> None:
        await finish[0].wait()

    async def scene(consumer: Consumer, group: Group) -> None:
        finish.append(asyncio.Event())
        await consumer.poll(5000, max_records=4)
        group.heard.clear()
        group.change(revoked=(PARTITION,))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await consumer.poll(5000)
        assert group.heard == [{0: 4}]
        finish[0].set()
        assert await consumer.poll(10) == []

    assert play(scene, on_revoked=slow).heard == [{0: 4}, "done"]


def test_leaving_ends_a_change_that_is_half_way(play: Play) -> None:
    async def slow(_: list[TopicPartition]) -> None:
        await asyncio.sleep(0.05)

    async def scene(consumer: Consumer, group: Group) -> None:
        await consumer.poll(5000, max_records=4)
        group.heard.clear()
        group.change(revoked=(PARTITION,))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await consumer.poll(5000)

    assert play(scene, on_revoked=slow).heard == [{0: 4}, "done"]


def test_an_error_of_a_callback_reaches_the_caller_and_the_group_goes_on(play: Play) -> None:
    def fail(_: list[TopicPartition]) -> None:
        raise ZeroDivisionError

    async def scene(consumer: Consumer, group: Group) -> None:
        with pytest.raises(ZeroDivisionError):
            await consumer.poll(5000)
        assert group.heard == ["done"]
        assert [record.offset for record in await consumer.poll(5000, max_records=2)] == [0, 1]

    play(scene, on_assigned=fail)


def test_leaving_commits_and_tells_the_callback(play: Play) -> None:
    async def scene(consumer: Consumer, group: Group) -> None:
        async for record in consumer:
            if record.offset == 6:
                break
        group.heard.clear()

    assert play(scene).heard == [{0: 6}, "on_revoked"]
