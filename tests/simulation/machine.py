"""A machine with its disks, on which one broker process runs after the other.

The process is killed between two steps or in the middle of a disk operation, and the machine may lose its power with
it: then it stays dark until the next start, and the disk has lost what was not synced.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Mapping, Sequence
from typing import NoReturn

from barnabas.broker.app import Broker
from barnabas.coordination.memory import Faults
from barnabas.core.broker_config import BrokerConfig
from tests.checker.history import Fault, TopicPartition
from tests.simulation.coordinator_watch import watch_coordinators
from tests.simulation.simulated_disk import SimulatedDisk
from tests.simulation.simulated_executor import SimulatedExecutor
from tests.simulation.simulated_process import Process, ProcessKilled, current_process
from tests.simulation.simulated_store import SimulatedStore
from tests.simulation.virtual_loop import SimulationError
from tests.simulation.watched_metadata import WatchedMetadata
from tests.simulation.world import SIMULATED, World

START_LIMIT_S = 300.0
PORT = 9092
NEEDS_ROOM = ("append", "create", "make_dirs")
COLD = 0.1  # of what is read
WORK_S = 0.01  # what a thread usually needs for it
SNAPSHOT_EVERY = 40  # records of metadata

SegmentBytes = dict[str, bytes]


class Machine:
    def __init__(
        self,
        world: World,
        metadata: WatchedMetadata,
        broker_id: int,
        data_dirs: Sequence[str],
        settings: Mapping[str, str],
    ) -> None:
        self.broker_id = broker_id
        self.host = f"machine-{broker_id}"
        self.boot = 0
        self.died = asyncio.Event()
        self.broker: Broker | None = None
        """While it serves."""
        self._world = world
        self._history = world.history
        self._metadata = metadata
        self._data_dirs = data_dirs
        self._settings = {
            **settings,
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{self.host}:{PORT}",
            "log.dirs": ",".join(data_dirs),
        }
        self._incarnation = 0
        self._process: Process | None = None
        self._store: SimulatedStore | None = None
        self._is_cut_off = False
        self._operations_to_death = 0  # 0: no death is planned
        self._operations_to_failure = 0
        self._disk_error = errno.EIO
        self._is_full = False
        self._store_rng = world.stream(f"{self.host}/store")
        self.disk = SimulatedDisk(world.stream(f"{self.host}/disk"), watcher=self._watch_disk, cold=COLD)
        for directory in data_dirs:
            self.disk.make_dirs(directory.rpartition("/")[0])
        self.disk.sync_dir("/")
        self.executor = SimulatedExecutor(world.loop, world.stream(f"{self.host}/executor"), WORK_S)

    @property
    def address(self) -> tuple[str, int]:
        return self.host, PORT

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.alive

    # the broker's life

    async def start(self) -> bool:
        """Start a broker, and wait until it serves; False if it died meanwhile."""
        self._world.network.lighten(self.host)
        self._incarnation += 1
        name = f"{self.host}/broker-{self._incarnation}"
        self._process = Process(self._world.loop, name, self.host)
        self.died.clear()
        started = self._process.start(self._serve(name))
        death = asyncio.ensure_future(self.died.wait())
        await asyncio.wait({started, death}, return_when=asyncio.FIRST_COMPLETED, timeout=START_LIMIT_S)
        death.cancel()
        if self.died.is_set():
            return False
        if not started.done():
            raise SimulationError(f"{name} has not started after {START_LIMIT_S} s\n{self._world.loop.pending()}")
        self.broker = started.result()
        return True

    async def _serve(self, name: str) -> Broker:
        faults = Faults(self._store_rng, unknown=0.05, max_delay_s=0.1)
        store = SimulatedStore(self._metadata, self.broker_id, faults, self._world.loop, self._is_cut_off)
        process = current_process()
        assert process is not None
        process.own(store)
        self._store = store
        broker = Broker(
            BrokerConfig(self._settings),
            disk=self.disk,
            network=self._world.network,
            clock=self._world.clock,
            random=self._world.stream(name),
            executor=self.executor,
            store=store,
            boot_id=f"{self.host}/boot-{self.boot}",
        )
        broker.metadata.snapshot_every = SNAPSHOT_EVERY
        watch_coordinators(self._world, broker, self._metadata)
        await broker.start()
        return broker

    async def stop(self) -> None:
        """Stop in good order."""
        assert self._process is not None
        assert self.broker is not None
        broker, self.broker = self.broker, None
        await asyncio.wait_for(self._process.start(broker.stop()), START_LIMIT_S)
        self._process.kill()

    def kill(self, power_cut: bool = False) -> None:
        """End the process now; with a power cut the machine goes dark, and forgets what was not synced."""
        self._operations_to_death = 0
        self.broker = None
        if self._process is not None:
            self._process.kill(power_cut)
        self.died.set()
        self._history.record(Fault("power cut" if power_cut else "crash", self.host))
        if power_cut:
            self._world.network.darken(self.host)

    def lose_unsynced(self) -> None:
        """What a power cut does to the disk."""
        self.disk.power_cut()
        self.boot += 1

    # faults

    def plan_death(self, operations: int) -> None:
        """Die in the middle of one of the next disk operations; `died` tells when."""
        self._operations_to_death = operations

    def plan_failure(self, operations: int, is_full: bool) -> None:
        """Let one of the next disk operations fail; if the disk is full then, also those after it that need room."""
        self._operations_to_failure = operations
        self._disk_error = errno.ENOSPC if is_full else errno.EIO

    def mend_disk(self) -> None:
        self._operations_to_failure = 0
        self._is_full = False

    def suspend(self) -> Process:
        """Stop the process, as SIGSTOP does; `go_on` ends that."""
        assert self._process is not None
        self._process.stop()
        return self._process

    def cut_off_store(self) -> None:
        self._is_cut_off = True
        if self._store is not None:
            self._store.cut()

    def mend_store(self) -> None:
        self._is_cut_off = False
        if self._store is not None:
            self._store.mend()

    def _watch_disk(self, operation: str, path: str) -> None:
        self._history.trace(self.broker_id, operation, path)
        if self._process is None or current_process() is not self._process:
            return
        if self._operations_to_death:
            self._operations_to_death -= 1
            if not self._operations_to_death:
                self._history.record(Fault("killed", self.host, f"{operation} {path}"))
                self.broker = None
                self._process.kill()
                self.died.set()
                raise ProcessKilled(operation)
        if self._operations_to_failure:
            self._operations_to_failure -= 1
            if not self._operations_to_failure:
                self._is_full = self._disk_error == errno.ENOSPC
                self._fail(operation, path)
        if self._is_full and operation in NEEDS_ROOM:
            self._fail(operation, path)

    def _fail(self, operation: str, path: str) -> NoReturn:
        self._history.record(Fault("disk error", self.host, f"{operation} {path}"))
        raise OSError(self._disk_error, f"{SIMULATED} in {operation}", path)

    # what is on the disk

    def segments(self, partition: TopicPartition) -> SegmentBytes | None:
        """The segments of a log by name, and so in their order; empty ones do not count. None: there is no log."""
        for directory in (f"{path}/{partition}" for path in self._data_dirs):
            if self.disk.exists(directory):
                names = [name for name in self.disk.list_dir(directory) if name.endswith(".log")]
                segments = {name: self.disk.read_bytes(f"{directory}/{name}") for name in names}
                return {name: data for name, data in segments.items() if data}
        return None
