"""What happens to the machines of a cluster, by a plan, and how each of these faults ends.

Several may be under way at once, but one machine is not killed again before it is back: the next one, if there is one
that nothing is the matter with, takes its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from barnabas.coordination.memory import MemoryMetadata
from tests.checker.history import Fault, TopicPartition
from tests.simulation import fault_plan
from tests.simulation.admin import PREFERRED, Topic, elect_leaders, reassign
from tests.simulation.brokers import Brokers
from tests.simulation.fault_plan import (
    CLIENTS,
    CONTROLLER,
    BreakDisk,
    Crash,
    Cut,
    CutOffStore,
    Disturb,
    Elect,
    Move,
    Plan,
    SlowDisk,
    Step,
    Stop,
    Suspend,
    some,
)
from tests.simulation.machine import Machine
from tests.simulation.world import World

IN_OPERATION_S = 20.0  # how long a death in a disk operation is waited for


def draw_plan(
    rng: random.Random, brokers: Sequence[int], moved_topics: Sequence[Topic], *, count: int, is_careful: bool
) -> Plan:
    """`is_careful`: several machines at once do not lose their power."""

    def crash(power_cut: bool, chance: float) -> list[fault_plan.Fault]:
        operations, starting = fault_plan.draw_operations(rng, chance), fault_plan.draw_operations(rng, 0.15)
        return [Crash(rng.choice(brokers), some(rng, 20), operations, power_cut, starting)]

    def several(rng: random.Random) -> list[fault_plan.Fault]:
        power_cut = not is_careful and rng.random() < 0.5
        return [Crash(each, some(rng, 20), 0, power_cut) for each in rng.sample(brokers, rng.randint(2, 3))]

    def cut(pairs: Sequence[tuple[object, object]]) -> list[fault_plan.Fault]:
        there, back = [f"{a}>{b}" for a, b in pairs], [f"{b}>{a}" for a, b in pairs]
        return [Cut(tuple(rng.choice((there, back, there + back, there + back))), some(rng, 40))]

    def cut_machines(rng: random.Random) -> list[fault_plan.Fault]:
        one, *others = rng.sample(brokers, 3)
        return cut([(one, other) for other in others[: rng.randint(1, 2)]])

    def cut_off_successor(rng: random.Random) -> list[fault_plan.Fault | Step]:
        """One goes, and whoever takes its place is cut off from the third and dies before that has caught up."""
        one, successor, third = rng.sample(brokers, 3)
        ways = (f"{successor}>{third}", f"{third}>{successor}")
        gone, dead = Stop(one, 10 + some(rng, 20)), Crash(successor, some(rng, 20))
        return [Cut(ways, 15 + some(rng, 25)), Step(some(rng, 2), gone), Step(some(rng, 8), dead)]

    def move(rng: random.Random) -> list[fault_plan.Fault]:
        """Other replicas, or the same in another order, as many as there are."""
        topic = rng.choice(moved_topics)
        return [Move(topic.name, tuple(rng.sample(brokers, topic.replicas)))]

    def delay(rng: random.Random) -> list[fault_plan.Fault]:
        """What clients have sent to one machine arrives when they have long asked again, on new connections."""
        return [Disturb("stall", round(rng.random(), 4), 5 + some(rng, 40), is_wide=True, of_clients=True)]

    kinds: fault_plan.Kinds = [
        (4, lambda rng: crash(False, 0.6)),
        (3, lambda rng: crash(True, 0.5)),
        (2, lambda rng: [Stop(rng.choice(brokers), some(rng, 20))]),
        (4, cut_machines),
        (2, lambda rng: cut([(rng.choice(brokers), CLIENTS)])),
        (3, delay),
        (2, lambda rng: [CutOffStore(rng.choice((CONTROLLER, CONTROLLER, *brokers)), some(rng, 30))]),
        (3, lambda rng: [fault_plan.draw_disturbance(rng) for _ in range(rng.randint(1, 5))]),
        (1, lambda rng: [SlowDisk(rng.choice(brokers), some(rng, 30), rng.choice((20, 200)))]),
        (1, lambda rng: [fault_plan.draw_broken_disk(rng, rng.choice(brokers))]),
        (3, lambda rng: [Suspend(rng.choice((CONTROLLER, *brokers)), some(rng, 30))]),
        (1, several),
        (2, cut_off_successor),
        (2, lambda rng: [Elect()]),
        (4, move),
    ]
    return fault_plan.draw(rng, kinds, count, 5.0)


class ClusterFaults:
    """With `until_healed`, one machine at a time loses power or its disk, and only while nothing else is the matter."""

    def __init__(
        self,
        world: World,
        machines: Mapping[int, Machine],
        metadata: MemoryMetadata,
        admin: Brokers,
        until_healed: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self._world = world
        self._machines = machines
        self._metadata = metadata
        self._admin = admin
        self._until_healed = until_healed
        self._repairs: list[asyncio.Task[None]] = []
        self._broken: set[int] = set()  # machines that a repair is under way for

    async def inject(self, fault: fault_plan.Fault) -> None:
        """What a fault needs to be repaired goes on by itself."""
        match fault:
            case Crash(power_cut=True):
                await self._carefully(fault.broker, partial(self._crash_and_restart, fault=fault))
            case BreakDisk():
                await self._carefully(fault.broker, partial(self._break_and_restart, fault=fault))
            case Crash():
                self._to_a_sound_one(fault.broker, partial(self._crash_and_restart, fault=fault))
            case Stop():
                self._to_a_sound_one(fault.broker, partial(self._stop_and_restart, down_s=fault.down_s))
            case Suspend():
                self._to_a_sound_one(fault.broker, partial(self._suspend_for_a_while, seconds=fault.seconds))
            case Cut():
                self._repair(self._cut_for_a_while(fault))
            case CutOffStore():
                self._repair(self._cut_off_store_for_a_while(fault))
            case Disturb():
                self._world.disturb(fault)
            case SlowDisk():
                self._repair(self._slow_down_for_a_while(fault))
            case Elect():
                self._repair(elect_leaders(self._admin, PREFERRED))
            case Move():
                self._world.history.record(Fault("reassignment", f"{fault.topic}-0", f"to {fault.replicas}"))
                self._repair(reassign(self._admin, TopicPartition(fault.topic, 0), list(fault.replicas)))
            case _:
                raise TypeError(f"{fault} does not happen to a cluster")

    async def repaired(self) -> None:
        """All that can come back has come back."""
        await asyncio.gather(*self._repairs)

    def _repair(self, repair: Coroutine[Any, Any, None]) -> None:
        self._repairs.append(asyncio.ensure_future(repair))

    def _to_a_sound_one(self, broker_id: int, happens: Callable[[Machine], Coroutine[Any, Any, None]]) -> None:
        """To this machine or, if something is the matter with it, to the next that nothing is the matter with."""
        first = self._named(broker_id)
        ids = sorted(self._machines, key=lambda each: (each < first, each))
        sound = next((each for each in ids if each not in self._broken), None)
        if sound is not None:
            self._broken.add(sound)
            self._repair(happens(self._machines[sound]))

    def _named(self, broker_id: int) -> int:
        holder = self._metadata.claim.holder
        if broker_id == CONTROLLER:
            return min(self._machines) if holder is None else holder
        return broker_id

    async def _carefully(self, broker_id: int, happens: Callable[[Machine], Coroutine[Any, Any, None]]) -> None:
        await self._be_careful()
        self._to_a_sound_one(broker_id, happens)
        await self._be_careful()

    async def _be_careful(self) -> None:
        if self._until_healed is not None:
            await self.repaired()
            await self._until_healed()

    async def _crash_and_restart(self, machine: Machine, fault: Crash) -> None:
        if fault.operations:
            machine.plan_death(fault.operations)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(machine.died.wait(), IN_OPERATION_S)
        machine.kill(fault.power_cut)
        if fault.power_cut:
            machine.lose_unsynced()
        await self._restart(machine, fault.down_s, fault.starting)

    async def _restart(self, machine: Machine, down_s: float, starting: int = 0) -> None:
        await asyncio.sleep(down_s)
        machine.plan_death(starting)
        while not await machine.start():
            machine.kill()
        machine.plan_death(0)
        self._broken.discard(machine.broker_id)

    async def _stop_and_restart(self, machine: Machine, down_s: float) -> None:
        await machine.stop()
        self._world.history.record(Fault("stopped in good order", machine.host))
        await self._restart(machine, down_s)

    async def _break_and_restart(self, machine: Machine, fault: BreakDisk) -> None:
        """The broker's logs are offline until it is started again."""
        machine.plan_failure(fault.operations, fault.is_full)
        await asyncio.sleep(fault.seconds)
        machine.mend_disk()
        machine.kill()
        await self._restart(machine, fault.down_s)

    async def _suspend_for_a_while(self, machine: Machine, seconds: float) -> None:
        self._world.history.record(Fault("suspended", machine.host))
        process = machine.suspend()
        await asyncio.sleep(seconds)
        process.go_on()
        self._world.history.record(Fault("goes on", machine.host))
        self._broken.discard(machine.broker_id)

    async def _cut_for_a_while(self, fault: Cut) -> None:
        network = self._world.network
        ways = [self._way(way) for way in fault.ways]
        for way in ways:
            self._world.history.record(Fault("cut", " to ".join(way)))
            network.cut(*way)
        await asyncio.sleep(fault.seconds)
        for way in ways:
            self._world.history.record(Fault("mended", " to ".join(way)))
            network.mend(*way)

    def _way(self, way: str) -> tuple[str, str]:
        """The hosts at its ends; that of the clients has no name."""
        here, _, there = way.partition(">")
        return self._host(here), self._host(there)

    def _host(self, end: str) -> str:
        return "" if end == CLIENTS else self._machines[int(end)].host

    async def _cut_off_store_for_a_while(self, fault: CutOffStore) -> None:
        machine = self._machines[self._named(fault.broker)]
        self._world.history.record(Fault("cut off from the store", machine.host))
        machine.cut_off_store()
        await asyncio.sleep(fault.seconds)
        machine.mend_store()
        self._world.history.record(Fault("has the store again", machine.host))

    async def _slow_down_for_a_while(self, fault: SlowDisk) -> None:
        machine = self._machines[fault.broker]
        self._world.history.record(Fault("slow disk", machine.host, f"{fault.factor} times"))
        machine.executor.slow_down(fault.factor)
        await asyncio.sleep(fault.seconds)
        machine.executor.slow_down(1)
