"""What may happen to three brokers under load. Each fault begins with all of them in sync and ends with all running.

A fault that leaves two brokers must leave the producers going on before it is mended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.cluster.faults_traffic import Traffic
from tests.cluster.three_brokers import NUMBERS, Cluster, in_sync, leaders, living_brokers, seconds_until

FENCED_WITHIN_S = 60.0
IN_SYNC_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Scene:
    cluster: Cluster
    traffic: Traffic
    topic: str
    random: Random

    def some_leader(self) -> int:
        return self.random.choice([*leaders(self.cluster.some_address, self.topic).values()])

    def controller(self) -> int:
        seconds_until(lambda: self.cluster.controller() in NUMBERS, FENCED_WITHIN_S)
        return self.cluster.controller()

    def until_all_are_in_sync(self) -> None:
        """As every broker knows it."""
        deadline = time.monotonic() + IN_SYNC_WITHIN_S
        while told := self._not_in_sync():
            assert time.monotonic() < deadline, f"in-sync replicas as the brokers know them: {told}"
            time.sleep(0.1)

    def _not_in_sync(self) -> dict[int, dict[int, set[int]]]:
        told = {number: in_sync(self.cluster.address(number), self.topic) for number in NUMBERS}
        every = set(NUMBERS)
        return told if any(members != every for known in told.values() for members in known.values()) else {}


Fault = Callable[[Scene], None]


def _crash(scene: Scene, number: int) -> None:
    scene.cluster.kill(number)
    scene.traffic.until_all_move()
    scene.cluster.start(number)


def kill_a_leader(scene: Scene) -> None:
    _crash(scene, scene.some_leader())


def kill_the_controller(scene: Scene) -> None:
    _crash(scene, scene.controller())


def kill_any_broker(scene: Scene) -> None:
    _crash(scene, scene.random.choice(NUMBERS))


def _hang(scene: Scene, number: int) -> None:
    """Others lead when it wakes up, and it has yet to read what it was sent as a leader."""
    with scene.cluster.paused(number):
        seconds_until(lambda: number not in living_brokers(scene.cluster.some_address), FENCED_WITHIN_S)
        scene.traffic.until_all_move()


def hang_a_leader(scene: Scene) -> None:
    _hang(scene, scene.some_leader())


def hang_the_controller(scene: Scene) -> None:
    _hang(scene, scene.controller())


def restart_each_in_turn(scene: Scene) -> None:
    for number in scene.random.sample(NUMBERS, len(NUMBERS)):
        scene.cluster.stop(number)
        scene.traffic.until_all_move()
        scene.cluster.start(number)
        scene.until_all_are_in_sync()


def kill_one_after_the_other(scene: Scene) -> None:
    """The second while the first is away: too few are left, until the first is back."""
    first = scene.some_leader()
    scene.cluster.kill(first)
    scene.traffic.until_all_move()
    second = scene.some_leader()
    scene.cluster.kill(second)
    scene.cluster.start(first)
    scene.traffic.until_all_move()
    scene.cluster.start(second)


def kill_all_at_once(scene: Scene) -> None:
    scene.cluster.kill(*NUMBERS)
    scene.cluster.start_together(NUMBERS)


FAULTS: tuple[Fault, ...] = (
    kill_a_leader,
    kill_the_controller,
    kill_any_broker,
    hang_a_leader,
    hang_the_controller,
    restart_each_in_turn,
    kill_one_after_the_other,
    kill_all_at_once,
)
