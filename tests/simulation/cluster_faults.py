"""What happens to the machines of a cluster, by chance, and how each of these faults ends.

Several may be under way at once, but one machine is not killed again before it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence

from barnabas.coordination.memory import MemoryMetadata
from tests.checker.history import Fault, TopicPartition
from tests.simulation.admin import PREFERRED, Topic, elect_leaders, reassign
from tests.simulation.brokers import Brokers
from tests.simulation.machine import Machine
from tests.simulation.world import World

CLIENTS = ""  # the host that they share
OPERATIONS_TO_FAULT = 60


class ClusterFaults:
    """With `until_healed`, one machine at a time loses power or its disk, and only while nothing else is the matter."""

    def __init__(
        self,
        world: World,
        machines: Mapping[int, Machine],
        metadata: MemoryMetadata,
        admin: Brokers,
        moved_topics: Sequence[Topic],
        until_healed: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self._world = world
        self._rng = world.stream("faults")
        self._machines = machines
        self._metadata = metadata
        self._admin = admin
        self._moved_topics = moved_topics
        self._until_healed = until_healed
        self._repairs: list[asyncio.Task[None]] = []
        self._broken: set[int] = set()  # machines that a repair is under way for

    async def inject(self) -> None:
        """One fault, drawn by chance; what it needs to be repaired goes on by itself."""
        kinds: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (4, self._crash),
            (3, self._lose_power),
            (2, self._restart_in_good_order),
            (4, self._cut_machines),
            (2, self._cut_clients),
            (2, self._cut_off_store),
            (2, self._disturb_connections),
            (1, self._slow_down_a_disk),
            (1, self._break_a_disk),
            (2, self._suspend),
            (1, self._lose_several),
            (2, self._elect),
            (4, self._move),
        ]
        ((_, inject),) = self._rng.choices(kinds, [weight for weight, _ in kinds])
        await inject()

    async def repaired(self) -> None:
        """All that can come back has come back."""
        await asyncio.gather(*self._repairs)

    def _repair(self, repair: Awaitable[None]) -> None:
        self._repairs.append(asyncio.ensure_future(repair))

    def _take(self) -> Machine | None:
        """A machine that nothing was the matter with, if there is one."""
        sound = [machine for machine in self._machines.values() if machine.broker_id not in self._broken]
        if not sound:
            return None
        machine = self._rng.choice(sound)
        self._broken.add(machine.broker_id)
        return machine

    async def _crash(self) -> None:
        if (machine := self._take()) is not None:
            self._repair(self._crash_and_restart(machine, in_operation=self._rng.random() < 0.6))

    async def _crash_and_restart(self, machine: Machine, *, in_operation: bool, power_cut: bool = False) -> None:
        if in_operation:
            machine.plan_death(self._rng.randint(1, OPERATIONS_TO_FAULT))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(machine.died.wait(), 3)
        machine.kill(power_cut)
        if power_cut:
            machine.lose_unsynced()
        await self._restart(machine)

    async def _restart(self, machine: Machine) -> None:
        await asyncio.sleep(self._rng.random() * 3)
        if self._rng.random() < 0.15:
            machine.plan_death(self._rng.randint(1, OPERATIONS_TO_FAULT))
        while not await machine.start():
            machine.kill()
        machine.plan_death(0)
        self._broken.discard(machine.broker_id)

    async def _lose_power(self) -> None:
        await self._be_careful()
        if (machine := self._take()) is not None:
            in_operation = self._rng.random() < 0.5
            self._repair(self._crash_and_restart(machine, in_operation=in_operation, power_cut=True))
            await self._be_careful()

    async def _be_careful(self) -> None:
        if self._until_healed is not None:
            await self.repaired()
            await self._until_healed()

    async def _lose_several(self) -> None:
        """Two or three at once; without power, if the seed is not a careful one, and just killed else."""
        power_cut = self._until_healed is None and self._rng.random() < 0.5
        for _ in range(self._rng.randint(2, 3)):
            if (machine := self._take()) is not None:
                self._repair(self._crash_and_restart(machine, in_operation=False, power_cut=power_cut))

    async def _restart_in_good_order(self) -> None:
        if (machine := self._take()) is not None:
            self._repair(self._stop_and_restart(machine))

    async def _stop_and_restart(self, machine: Machine) -> None:
        await machine.stop()
        self._world.history.record(Fault("stopped in good order", machine.host))
        await self._restart(machine)

    async def _cut_machines(self) -> None:
        """One machine is cut off from one other or from both, one way or both ways."""
        one, *others = self._rng.sample([machine.host for machine in self._machines.values()], 3)
        self._cut([(one, other) for other in others[: self._rng.randint(1, 2)]])

    async def _cut_clients(self) -> None:
        machine = self._rng.choice(list(self._machines.values()))
        self._cut([(machine.host, CLIENTS)])

    def _cut(self, pairs: list[tuple[str, str]]) -> None:
        there, back = [(a, b) for a, b in pairs], [(b, a) for a, b in pairs]
        ways = self._rng.choice((there, back, there + back, there + back))
        self._repair(self._cut_for_a_while(ways))

    async def _cut_for_a_while(self, ways: list[tuple[str, str]]) -> None:
        network = self._world.network
        for way in ways:
            self._world.history.record(Fault("cut", " to ".join(way)))
            network.cut(*way)
        await asyncio.sleep(self._rng.random() * 5)
        for way in ways:
            self._world.history.record(Fault("mended", " to ".join(way)))
            network.mend(*way)

    async def _cut_off_store(self) -> None:
        """More often than others, the controller."""
        holder = self._metadata.claim.holder
        chosen = holder if holder is not None and self._rng.random() < 0.6 else self._rng.choice(list(self._machines))
        self._repair(self._cut_off_store_for_a_while(self._machines[chosen]))

    async def _cut_off_store_for_a_while(self, machine: Machine) -> None:
        self._world.history.record(Fault("cut off from the store", machine.host))
        machine.cut_off_store()
        await asyncio.sleep(self._rng.random() * 4)
        machine.mend_store()
        self._world.history.record(Fault("has the store again", machine.host))

    async def _disturb_connections(self) -> None:
        for _ in range(self._rng.randint(1, 5)):
            self._world.disturb_a_connection(self._rng)

    async def _suspend(self) -> None:
        if (machine := self._take()) is not None:
            self._repair(self._suspend_for_a_while(machine))

    async def _suspend_for_a_while(self, machine: Machine) -> None:
        self._world.history.record(Fault("suspended", machine.host))
        process = machine.suspend()
        await asyncio.sleep(self._rng.random() * 4)
        process.go_on()
        self._world.history.record(Fault("goes on", machine.host))
        self._broken.discard(machine.broker_id)

    async def _break_a_disk(self) -> None:
        """One operation fails, which takes the broker's logs offline until it is started again."""
        await self._be_careful()
        if (machine := self._take()) is not None:
            self._repair(self._break_and_restart(machine))
            await self._be_careful()

    async def _break_and_restart(self, machine: Machine) -> None:
        machine.plan_failure(self._rng.randint(1, OPERATIONS_TO_FAULT // 2))
        await asyncio.sleep(self._rng.random() * 3)
        machine.plan_failure(0)
        await self._crash_and_restart(machine, in_operation=False)

    async def _slow_down_a_disk(self) -> None:
        machine = self._rng.choice(list(self._machines.values()))
        self._world.history.record(Fault("slow disk", machine.host))
        self._repair(self._slow_down_for_a_while(machine))

    async def _slow_down_for_a_while(self, machine: Machine) -> None:
        machine.executor.slow_down(self._rng.choice((20, 200)))
        await asyncio.sleep(self._rng.random() * 4)
        machine.executor.slow_down(1)

    async def _elect(self) -> None:
        self._repair(elect_leaders(self._admin, PREFERRED))

    async def _move(self) -> None:
        """Other replicas, or the same in another order, as many as there are."""
        topic = self._rng.choice(self._moved_topics)
        replicas = self._rng.sample(list(self._machines), topic.replicas)
        self._world.history.record(Fault("reassignment", f"{topic.name}-0 to {replicas}"))
        self._repair(reassign(self._admin, TopicPartition(topic.name, 0), replicas))
