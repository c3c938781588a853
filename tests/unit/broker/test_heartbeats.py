"""A broker's side of its registration: what it waits for before it serves."""

from __future__ import annotations

import asyncio
import errno
from random import Random
from types import SimpleNamespace
from typing import Any

from barnabas.broker.heartbeats import Heartbeats
from barnabas.cluster.events import BrokerEpoch, BrokerHeartbeat, BrokerState
from barnabas.core.broker_config import BrokerConfig

EPOCH = 5


class Cluster:
    """A controller that fences the broker again while its first "you are not fenced" is still under way."""

    def __init__(self) -> None:
        self.heartbeats = 0
        self.seconds = 100.0
        self.has_left = False
        self.index = EPOCH + 1

    async def submit(self, event: Any, patience_s: float) -> BrokerEpoch | BrokerState:
        if not isinstance(event, BrokerHeartbeat):
            return BrokerEpoch(EPOCH)
        self.heartbeats += 1
        return BrokerState(True, False, False)

    def is_alive(self, broker_id: int) -> bool:
        return self.heartbeats > 1

    async def refresh(self) -> None:
        pass

    def monotonic(self) -> float:
        return self.seconds

    async def leave_what_others_have(self) -> None:
        assert self.heartbeats == 0, "a leader could be elected before"
        self.has_left = True

    async def until(self, is_so: Any) -> None:
        assert is_so(self)

    @property
    def image(self) -> Cluster:
        return self


class Directory:
    directory_id = ""
    is_offline = False
    clean_epoch = EPOCH - 1

    def __init__(self, path: str = "/sound") -> None:
        self.path = path


class Disk:
    """Nothing can be written below /full."""

    def replace(self, path: str, data: bytes) -> None:
        if path.startswith("/full"):
            raise OSError(errno.ENOSPC, "no space left on device", path)


def starting(cluster: Cluster, *directories: Directory) -> Any:
    """A broker with these directories that is about to enter."""

    async def submit(function: Any, *arguments: object) -> Any:
        return function(*arguments)

    def take_offline(directory: Directory, error: OSError) -> None:
        directory.is_offline = True

    return SimpleNamespace(
        broker_id=1,
        broker_epoch=-1,
        config=BrokerConfig({}),
        clock=cluster,
        manager=SimpleNamespace(directories=directories, is_taken_up=False, take_offline=take_offline),
        replicas=SimpleNamespace(settled=cluster.refresh),
        damaged_replicas=cluster,
        endpoints=(),
        executor=SimpleNamespace(submit=submit),
        controller=cluster,
        metadata=cluster,
    )


async def enter(broker: Any) -> None:
    disk: Any = Disk()
    await asyncio.wait_for(Heartbeats(broker, disk, Random(0), "").enter(), 10)


def test_a_broker_that_is_fenced_again_while_it_starts_goes_on_sending_heartbeats() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        broker = starting(cluster, Directory())
        await enter(broker)
        assert broker.broker_epoch == EPOCH
        assert cluster.heartbeats == 2
        assert cluster.has_left

    asyncio.run(scenario())


def test_a_directory_that_cannot_be_written_to_is_done_without() -> None:
    async def scenario() -> None:
        sound, full = Directory(), Directory("/full")
        broker = starting(Cluster(), full, sound)
        await enter(broker)
        assert full.is_offline
        assert not sound.is_offline

    asyncio.run(scenario())


def test_a_broker_whose_heartbeats_are_not_answered_does_not_know_what_has_become_of_it() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        disk: Any = Disk()
        heartbeats = Heartbeats(starting(cluster, Directory()), disk, Random(0), "")
        answered = [heartbeats.is_answered]
        await heartbeats.enter()
        for seconds in (0.0, 3.9, 0.2):
            cluster.seconds += seconds
            answered.append(heartbeats.is_answered)
        assert answered == [False, True, True, False]

    asyncio.run(scenario())
