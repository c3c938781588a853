"""A cluster with everything that can be done to it: who plays which role now, what is under way, and is all well?"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from random import Random
from typing import TypeVar

from tests.chaos.brokers import Brokers, SmallDisk
from tests.chaos.ensemble import Ensemble
from tests.chaos.journal import Journal
from tests.chaos.network import Network
from tests.chaos.plan import Planned
from tests.checker.history import Fault
from tests.cluster.three_brokers import controller_of, leaders, partitions

T = TypeVar("T")
REPLICAS = 3
RECOVERED_WITHIN_S = 150.0
SCRUBBED_WITHIN_S = 400.0
"""A scrub takes a tenth of a thread's time, and a loaded machine makes that little."""
_MOST_AT_ONCE = 32  # some wait for others
COORDINATORS = ("__consumer_offsets", "__transaction_state")


class World:
    """`topics` are those that clients write to. The run's thread owns it; work that waits goes to others."""

    def __init__(
        self,
        network: Network,
        brokers: Brokers,
        ensemble: Ensemble | None,
        small_disk: tuple[int, SmallDisk],
        journal: Journal,
        topics: tuple[str, ...],
    ) -> None:
        self.network = network
        self.brokers = brokers
        self.ensemble = ensemble
        self.small_disk = small_disk
        self.journal = journal
        self.topics = topics
        self.figures: Counter[str] = Counter()
        self._counting = threading.Lock()
        self.hidden: Counter[int] = Counter()
        """The brokers that this process cannot reach, or that do not answer, by how many faults."""
        self._work = ThreadPoolExecutor(_MOST_AT_ONCE, thread_name_prefix="mending")
        self._under_way: list[Future[object]] = []

    # who is who

    @property
    def running(self) -> list[int]:
        return sorted(self.brokers.brokers)

    def targets(self, planned: Planned) -> list[int]:
        """Who plays a role now, and runs; anybody who runs where the role is not played; nobody if all are down."""
        if planned.role == "all":
            return self.running
        random = Random(planned.choice)
        found = self.ask(lambda address: self._player(address, planned.role, random), -1)
        return [found] if found in self.running else random.sample(self.running, 1) if self.running else []

    def _player(self, address: str, role: str, random: Random) -> int:
        if role == "controller":
            return controller_of(address)
        if role == "coordinator":
            return random.choice(sorted(leaders(address, random.choice(COORDINATORS)).values()))
        if role == "any":
            return random.choice(self.running)
        partition = random.choice(partitions(address, random.choice(self.topics)))
        if role == "leader":
            return partition.leader_id
        return random.choice([number for number in partition.replica_nodes if number != partition.leader_id])

    def ask(self, question: Callable[[str], T], otherwise: T) -> T:
        """The answer of the first broker that gives one."""
        for number in [number for number in self.running if not self.hidden[number]]:
            try:
                return question(self.brokers.address(number))
            except (OSError, IndexError, ValueError):  # it is about to end, or has nothing to tell yet
                continue
        return otherwise

    # what happens

    def count(self, what: str, times: int) -> None:
        with self._counting:
            self.figures[what] += times

    def note(self, kind: str, target: object, detail: str = "") -> None:
        self.journal.history.record(Fault(kind, str(target), detail))

    def later(self, work: Callable[..., object], *arguments: object) -> Future[object]:
        """Something that may have to wait until other faults are mended."""
        future = self._work.submit(work, *arguments)
        self._under_way.append(future)
        return future

    def start(self, number: int, after: Future[object] | None = None) -> Future[object]:
        """Start a broker, if need be after something else."""

        def work() -> None:
            if after is not None:
                after.result(RECOVERED_WITHIN_S)
            self.brokers.start(number)
            self.note("start", number)

        return self.later(work)

    # is all well?

    def recover(self) -> str:
        """Wait until all brokers run, all replicas are in sync and every client makes progress; how long that took."""
        began = time.monotonic()
        for work in self._under_way:
            work.result(SCRUBBED_WITHIN_S)
        self._under_way.clear()
        deadline = time.monotonic() + RECOVERED_WITHIN_S
        while trouble := self._trouble():
            if time.monotonic() > deadline:
                raise AssertionError(f"not recovered after {RECOVERED_WITHIN_S:.0f} s: {trouble}")
            time.sleep(0.1)
        in_sync = time.monotonic()
        last = self.journal.until_all_move(RECOVERED_WITHIN_S)
        going_on = f"{', '.join(last)} went on {time.monotonic() - in_sync:.1f} s later"
        return f"all in sync {in_sync - began:.1f} s later, {going_on}"

    def _trouble(self) -> str:
        for number in self.brokers.numbers:
            if number not in self.brokers.brokers:
                return f"broker {number} does not run"
            self.brokers.check_alive(self.brokers.brokers[number])
            try:
                for topic in (*self.topics, *COORDINATORS):
                    for told in partitions(self.brokers.address(number), topic):
                        replicas = sorted(told.replica_nodes)
                        if sorted(told.isr_nodes) != replicas or len(replicas) != REPLICAS or told.leader_id < 0:
                            where = f"{topic}-{told.partition_index} is led by {told.leader_id}"
                            return f"broker {number} tells: {where}, in sync are {told.isr_nodes} of {replicas}"
            except OSError as error:
                return f"broker {number} does not answer: {error!r}"
        return ""

    def close(self) -> None:
        self._work.shutdown()
