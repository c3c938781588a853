"""One broker and its clients for some simulated seconds, with faults, all from one seed.

    python -m tests.simulation.one_broker SEED      runs a seed again and prints its history

The broker is killed between two steps or in the middle of a disk operation, with and without a power cut, also while it
is starting; it is stopped in good order; its connections are reset, stalled and lost. After every death it is started
again on the same disk, and what it finds there is compared with what was there before. In the end everything is read
once more, before and after a last restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import random
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator

from barnabas.broker.app import Broker
from barnabas.coordination.memory import Faults, MemoryMetadata, MemoryStore
from barnabas.core.broker_config import BrokerConfig
from barnabas.core.logs import ROOT, TextFormatter
from barnabas.core.seams import Clock
from tests.simulation.admin import Topic, Trimmer, create_topics
from tests.simulation.checker import anomalies
from tests.simulation.client import Client
from tests.simulation.consumer import Consumer, read_to_end
from tests.simulation.history import Fault, FinalLog, History, Polled, PowerCut, Recovered, TopicPartition
from tests.simulation.producer import Producer
from tests.simulation.simulated_disk import SimulatedDisk
from tests.simulation.simulated_executor import SimulatedExecutor
from tests.simulation.simulated_network import SimulatedNetwork
from tests.simulation.simulated_process import Process, ProcessKilled, current_process
from tests.simulation.virtual_loop import SimulationError, VirtualClock, VirtualLoop

SIMULATED = "simulated failure"
HOST, PORT, BROKER_ID = "127.0.0.1", 9092, 1
DATA_DIRS = ("/disk-1/data", "/disk-2/data")
TIME_LIMIT_S = 600.0
MAX_STEPS = 400_000
START_LIMIT_S = 60.0
OPERATIONS_TO_FAULT = 60
DISK_ERRORS = (errno.EIO, errno.ENOSPC)

SETTINGS = {
    "broker.id": str(BROKER_ID),
    "listeners": f"PLAINTEXT://{HOST}:{PORT}",
    "auto.create.topics.enable": "false",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "500",
}
PLAIN, ROLLING = Topic("plain", 2), Topic("rolling", 1, (("segment.ms", "1500"),))
SYNCED = Topic("synced", 2, (("flush.messages", "1"),))
SYNCED_ROLLING = Topic("synced-rolling", 1, (("flush.messages", "1"), ("segment.ms", "1000")))
EXPIRING = Topic("expiring", 1, (("segment.ms", "700"), ("retention.ms", "1500")))
TOPICS = (PLAIN, ROLLING, SYNCED, SYNCED_ROLLING, EXPIRING)
SYNCED_TOPICS = frozenset({SYNCED.name, SYNCED_ROLLING.name})
EXPIRING_TOPICS = frozenset({EXPIRING.name})
PARTITIONS = [TopicPartition(topic.name, index) for topic in TOPICS for index in range(topic.partitions)]
TRIMMED_PARTITIONS = [TopicPartition(topic.name, 0) for topic in (PLAIN, ROLLING, SYNCED_ROLLING)]

SegmentBytes = dict[str, bytes]


class Run:
    def __init__(self, seed: int) -> None:
        self._rng = self._stream(seed, "faults")
        self._seed = seed
        shuffle = self._stream(seed, "order") if seed % 2 else None
        self.loop = VirtualLoop(shuffle=shuffle, max_steps=MAX_STEPS)
        self.history = History(self.loop.time)
        self.clock = VirtualClock(self.loop)
        self._disk = SimulatedDisk(self._stream(seed, "disk"), watcher=self._watch_disk, cold=0.1)
        self._network = SimulatedNetwork(
            self.loop, self._stream(seed, "network"), lambda *event: self.history.trace(*event)
        )
        self._metadata = MemoryMetadata()
        self._store_rng = self._stream(seed, "store")
        self._executor = SimulatedExecutor(self.loop, self._stream(seed, "executor"))
        self._boot = 0
        self._incarnation = 0
        self._process: Process | None = None
        self._broker: Broker | None = None
        self._died = asyncio.Event()
        self._operations_to_death = 0  # 0: no death is planned
        self._operations_to_failure = 0
        self._data_dirs = DATA_DIRS[: self._rng.randint(1, len(DATA_DIRS))]
        for mount_point in ("/disk-1", "/disk-2"):
            self._disk.make_dirs(mount_point)
        self._disk.sync_dir("/")
        self._log_before: dict[TopicPartition, SegmentBytes] = {}
        self._stopping = False
        self.producers: list[Producer] = []

    @staticmethod
    def _stream(seed: int, name: str) -> random.Random:
        """Chance of its own for every part, so that one part's draws do not move another's."""
        return random.Random(f"{seed}/{name}")

    # the course of a run

    async def main(self) -> None:
        await self._start()
        admin = self._client()
        ids = await create_topics(admin, TOPICS)
        clients = [asyncio.ensure_future(client.run(lambda: self._stopping)) for client in self._make_clients(ids)]
        for _ in range(self._rng.randint(2, 4)):
            await asyncio.sleep(self._rng.random() * 2)
            await self._inject()
        await asyncio.sleep(self._rng.random())
        self._stopping = True
        await asyncio.gather(*clients)
        for partition in PARTITIONS:
            start, records = await read_to_end(admin, partition, ids)
            self.history.record(Polled("verifier", self._boot, partition, start, records))
        await self._restart_in_good_order()
        for partition in PARTITIONS:
            self.history.record(FinalLog(partition, *await read_to_end(admin, partition, ids)))
        admin.close()
        await self._stop()

    def _make_clients(self, ids: dict[str, bytes]) -> Iterator[Producer | Consumer | Trimmer]:
        rng = self._stream(self._seed, "clients")
        for number in range(rng.randint(2, 5)):
            idempotent = rng.random() < 0.6
            partition = PARTITIONS[rng.randrange(len(PARTITIONS))]
            name = f"{'i' if idempotent else 'p'}{number}"
            chance = self._stream(self._seed, name)
            topic_id = ids[partition.topic]
            producer = Producer(name, self._client(), partition, topic_id, idempotent, chance, self.clock, self.history)
            self.producers.append(producer)
            yield producer
        for number in range(2):
            name = f"c{number}"
            yield Consumer(name, self._client(), PARTITIONS, ids, self._stream(self._seed, name), self.history)
        yield Trimmer(self._client(), TRIMMED_PARTITIONS, self._stream(self._seed, "trimmer"), self.history)

    def _client(self) -> Client:
        return Client(self._network, HOST, PORT, lambda: self._boot)

    # faults

    async def _inject(self) -> None:
        """One fault, drawn by chance."""
        kinds: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (3, lambda: self._crash(power_cut=False, in_operation=False)),
            (3, lambda: self._crash(power_cut=False, in_operation=True)),
            (3, lambda: self._crash(power_cut=True, in_operation=False)),
            (4, lambda: self._crash(power_cut=True, in_operation=True)),
            (1, self._restart_in_good_order),
            (3, self._disturb_a_connection),
            (2, self._break_a_disk),
        ]
        ((_, inject),) = self._rng.choices(kinds, [weight for weight, _ in kinds])
        await inject()

    async def _crash(self, power_cut: bool, in_operation: bool) -> None:
        if in_operation:
            self._operations_to_death = self._rng.randint(1, OPERATIONS_TO_FAULT)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._died.wait(), 10)
        self._kill()
        self._bury(power_cut)
        await asyncio.sleep(self._rng.random())
        while True:
            if self._rng.random() < 0.15:
                self._operations_to_death = self._rng.randint(1, OPERATIONS_TO_FAULT)
            if await self._start():
                break
            self._bury(power_cut=self._rng.random() < 0.5)
        self._operations_to_death = 0

    async def _break_a_disk(self) -> None:
        """One operation fails, which takes its log directory offline until the broker is started again."""
        self._operations_to_failure = self._rng.randint(1, OPERATIONS_TO_FAULT // 2)
        await asyncio.sleep(self._rng.random() * 3)
        self._operations_to_failure = 0
        if self._rng.random() < 0.5:
            await self._crash(power_cut=False, in_operation=False)
        else:
            await self._restart_in_good_order()

    async def _disturb_a_connection(self) -> None:
        ends = self._network.connections()
        if not ends:
            return
        end = self._rng.choice(ends)
        kind = self._rng.choice(("reset", "stall", "lose"))
        self.history.record(Fault(kind, end.name))
        if kind == "reset":
            self._network.reset(end)
        elif kind == "stall":
            self._network.stall(end, self._rng.random() * 10)
        else:
            self._network.lose(end)

    async def _restart_in_good_order(self) -> None:
        await self._stop()
        self.history.record(Fault("stopped in good order"))
        if not await self._start():
            raise SimulationError("the broker did not start after it was stopped in good order")

    # the broker's life

    async def _start(self) -> bool:
        """Start a broker; False if it died meanwhile."""
        self._incarnation += 1
        name = f"broker-{self._incarnation}"
        self._process = Process(self.loop, name)
        self._died.clear()
        started = self._process.start(self._serve(name))
        death = asyncio.ensure_future(self._died.wait())
        await asyncio.wait({started, death}, return_when=asyncio.FIRST_COMPLETED, timeout=START_LIMIT_S)
        death.cancel()
        if self._died.is_set():
            return False
        if not started.done():
            raise SimulationError(f"{name} has not started after {START_LIMIT_S} s\n{self.loop.pending()}")
        self._broker = started.result()
        self._compare_logs()
        return True

    async def _serve(self, name: str) -> Broker:
        faults = Faults(self._store_rng, unknown=0.05, max_delay_s=0.02)
        store = _MortalStore(self._metadata, BROKER_ID, faults)
        process = current_process()
        assert process is not None
        process.own(store)
        broker = Broker(
            BrokerConfig({**SETTINGS, "log.dirs": ",".join(self._data_dirs)}),
            disk=self._disk,
            network=self._network,
            clock=self.clock,
            random=self._stream(self._seed, name),
            executor=self._executor,
            store=store,
        )
        await broker.start()
        return broker

    async def _stop(self) -> None:
        assert self._process is not None
        assert self._broker is not None
        await asyncio.wait_for(self._process.start(self._broker.stop()), START_LIMIT_S)
        self._process.kill()
        self._log_before = self._logs()

    def _kill(self) -> None:
        assert self._process is not None
        self._operations_to_death = 0
        self._process.kill()

    def _bury(self, power_cut: bool) -> None:
        """See what the dead broker leaves, and let the power take its share."""
        self.history.record(Fault("power cut" if power_cut else "crash"))
        self._log_before = self._logs()
        if power_cut:
            self._disk.power_cut()
            self._boot += 1
            self.history.record(PowerCut(self._boot))

    def _watch_disk(self, operation: str, path: str) -> None:
        self.history.trace(operation, path)
        if current_process() is not self._process:
            return
        if self._operations_to_death:
            self._operations_to_death -= 1
            if not self._operations_to_death:
                self.history.record(Fault("killed", f"{operation} {path}"))
                self._died.set()
                self._kill()
                raise ProcessKilled(operation)
        if self._operations_to_failure:
            self._operations_to_failure -= 1
            if not self._operations_to_failure:
                self.history.record(Fault("disk error", f"{operation} {path}"))
                raise OSError(self._rng.choice(DISK_ERRORS), f"{SIMULATED} in {operation}", path)

    def _logs(self) -> dict[TopicPartition, SegmentBytes]:
        """The segments of every log on the disk, by name, and so in their order; empty ones do not count."""
        found = {}
        for partition in PARTITIONS:
            for directory in (f"{path}/{partition}" for path in self._data_dirs):
                if self._disk.exists(directory):
                    names = [name for name in self._disk.list_dir(directory) if name.endswith(".log")]
                    segments = {name: self._disk.read_bytes(f"{directory}/{name}") for name in names}
                    found[partition] = {name: data for name, data in segments.items() if data}
        return found

    def _compare_logs(self) -> None:
        after = self._logs()
        for partition, before in self._log_before.items():
            kept = after.get(partition, {})
            sizes = [sum(map(len, segments.values())) for segments in (before, kept)]
            self.history.record(Recovered(partition, sizes[0], sizes[1], _is_prefix(before, kept)))


def _is_prefix(before: SegmentBytes, after: SegmentBytes) -> bool:
    """Whether nothing but the end of a log is missing; whole segments at its beginning may be gone or back."""
    names = list(before)
    kept = [name for name in after if names and name >= names[0]]
    if not kept:
        return True
    *whole, last = kept
    if last not in names or names[names.index(last) - len(whole) : names.index(last)] != whole:
        return False
    return before[last].startswith(after[last]) and all(after[name] == before[name] for name in whole)


class _MortalStore(MemoryStore):
    """A session with the metadata store that ends with its process."""

    def abandon(self, power_cut: bool) -> None:
        self.crash()


class _ErrorLog(logging.Handler):
    """Errors that the broker logged: it handled them, but of the faults here only a broken disk should be one."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(logging.ERROR)
        self.setFormatter(TextFormatter(clock, colour=False))
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        if not any(cause in line for cause in (SIMULATED, "a log directory is offline")):
            self.lines.append(line)


def run(seed: int) -> tuple[History, list[str]]:
    """The history of a seed, and what is wrong with it."""
    simulation = Run(seed)
    errors = _ErrorLog(simulation.clock)
    logger = logging.getLogger(ROOT)
    logger.addHandler(errors)
    collects = gc.isenabled()
    gc.disable()  # garbage with finalizers must not be found at a moment that the seed does not choose
    problems = []
    try:
        simulation.loop.run_until_complete(asyncio.wait_for(simulation.main(), TIME_LIMIT_S))
        simulation.loop.close()
    except Exception as error:  # whatever it is, it belongs to the seed's verdict
        problems.append("".join(traceback.format_exception(error)))
    finally:
        if collects:
            gc.enable()
        logger.removeHandler(errors)
    idempotent = {producer.name for producer in simulation.producers if producer.idempotent}
    problems += anomalies(simulation.history.events, SYNCED_TOPICS, EXPIRING_TOPICS, idempotent)
    return simulation.history, problems + errors.lines


def judge(seed: int) -> tuple[str, list[str]]:
    """The digest of a seed's history, and what is wrong with it."""
    history, problems = run(seed)
    return history.digest, problems


if __name__ == "__main__":
    history, problems = run(int(sys.argv[1]))
    print(history)
    print(*problems, sep="\n")
    print(f"digest {history.digest}")
    sys.exit(bool(problems))
