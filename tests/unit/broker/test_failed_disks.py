"""What a broker asks the controller for when a disk has failed, in virtual time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from barnabas.broker.failed_disks import FailedDisks
from barnabas.cluster.events import AlterPartition
from barnabas.core.errors import ErrorCode, KafkaError
from tests.simulation.virtual_loop import VirtualLoop
from tests.unit.cluster.clusters import TestCluster

BROKER = 1


class Disk:
    def __init__(self) -> None:
        self.removed: list[str] = []

    def remove(self, path: str) -> None:
        self.removed.append(path)
        raise OSError("it cannot even do that")


class Broker:
    """Broker 1 of three, with two directories; the controller's answers come from its own metadata."""

    def __init__(self, loop: VirtualLoop, refusals: int) -> None:
        self.broker_id = BROKER
        self.cluster = TestCluster(3)
        self.cluster.create(1, 2, 3, name="led")
        self.cluster.create(2, 1, 3, name="followed")
        self.cluster.create(3, 2, name="elsewhere")
        self.asked: list[tuple[float, str]] = []
        self.lost: list[tuple[str, int]] = []
        self.manager = SimpleNamespace(directories=[Directory("/a"), Directory("/b")])
        self.controller = self.executor = self.replicas = self
        self._loop = loop
        self._refusals = refusals

    @property
    def broker_epoch(self) -> int:
        return self.cluster.image.brokers[BROKER].epoch

    @property
    def metadata(self) -> TestCluster:
        return self.cluster

    def unusable(self) -> list[tuple[str, int]]:
        return self.lost

    async def submit(self, what: Any, *arguments: Any) -> Any:
        if not isinstance(what, AlterPartition):
            return what(*arguments)  # to the executor
        name = self.cluster.image.topic_names[what.topic_id]
        self.asked.append((self._loop.time(), name))
        if self._refusals:
            self._refusals -= 1
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, "too late")
        return self.cluster.submit(what)


class Directory:
    def __init__(self, path: str) -> None:
        self.path = path
        self.is_offline = False


def fail_a_disk(refusals: int = 0) -> tuple[Broker, Disk]:
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    disk: Any = Disk()
    broker: Any = Broker(loop, refusals)

    async def story() -> None:
        disks = FailedDisks(broker, disk)
        task = asyncio.create_task(disks.run())
        await asyncio.sleep(1)
        broker.manager.directories[1].is_offline = True
        broker.lost = [("led", 0), ("followed", 0)]
        for _ in range(2):
            disks.look()
            await asyncio.sleep(10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    try:
        loop.run_until_complete(story())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    return broker, disk


def test_it_leaves_the_in_sync_replicas_whether_it_leads_or_follows() -> None:
    broker, _ = fail_a_disk()
    assert broker.asked == [(1, "led"), (1, "followed")]
    led, followed = broker.cluster.partition("led"), broker.cluster.partition("followed")
    assert (led.leader, led.isr) == (2, (2, 3))
    assert (followed.leader, followed.isr) == (2, (2, 3))


def test_what_is_refused_is_asked_again() -> None:
    broker, _ = fail_a_disk(refusals=1)
    assert broker.asked == [(1, "led"), (1, "followed"), (2, "led")]
    assert BROKER not in broker.cluster.partition("led").isr


def test_the_next_start_will_not_claim_that_the_disk_has_kept_everything() -> None:
    _, disk = fail_a_disk()
    assert disk.removed == ["/b/.barnabas_boot"]
