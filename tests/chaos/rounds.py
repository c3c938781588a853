"""One round: a cluster, its clients, one scene of faults after the other, and the verdict on what everybody saw."""

from __future__ import annotations

import faulthandler
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from typing import NamedTuple

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos import clocks, closing
from tests.chaos.brokers import Brokers, SmallDisk
from tests.chaos.ensemble import Ensemble
from tests.chaos.faults import FAULTS
from tests.chaos.journal import Journal
from tests.chaos.load import COPY, PARTITIONS, Load
from tests.chaos.network import Network
from tests.chaos.plan import Planned, Scene, scenes
from tests.chaos.workload import Workload
from tests.chaos.world import REPLICAS, World
from tests.checker.checker import anomalies
from tests.checker.expectations import Expectations
from tests.checker.history import Sent
from tests.cluster.three_brokers import living_brokers
from tests.peers import eventually

STARTED_WITHIN_S = 150.0
TOPICS = (*Load.topics, COPY)
Show = Callable[[str], None]


class Shape(NamedTuple):
    brokers: int
    store: str

    def __str__(self) -> str:
        return f"{self.brokers} brokers, {self.store}"


SHAPES = (Shape(3, "embedded"), Shape(5, "zookeeper"), Shape(5, "embedded"), Shape(3, "zookeeper"))


@dataclass(frozen=True, slots=True)
class Round:
    """What a round will be: all of it comes from the seed and the number."""

    seed: int
    number: int
    rate: float
    longest_s: float
    only: tuple[str, ...] = ()
    """The kinds of faults; all if none is named."""

    @property
    def shape(self) -> Shape:
        return SHAPES[(Random(f"shape {self.seed}").randrange(len(SHAPES)) + self.number) % len(SHAPES)]

    def scenes(self) -> Iterator[Scene]:
        has = [self.shape.store, *(["faketime"] if clocks.library() else [])]
        return scenes(self.random("plan"), has, self.longest_s, self.only)

    def random(self, what: str) -> Random:
        return Random(f"{what} {self.seed} {self.number}")


@dataclass
class Verdict:
    shape: Shape
    figures: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    setbacks: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


def plan_text(chosen: Round, count: int) -> str:
    lines = [f"round {chosen.number}: {chosen.shape}"]
    lines += [
        f"  {number:3d}  {'; '.join(map(str, scene))}" for number, scene in enumerate(islice(chosen.scenes(), count))
    ]
    return "\n".join(lines)


def run(chosen: Round, seconds: float, network: Network, directory: Path, show: Show) -> Verdict:
    """All problems are in the verdict; the directory holds what the processes left."""
    verdict = Verdict(chosen.shape)
    journal = Journal()
    began = time.monotonic()
    with ExitStack() as stack:
        try:
            world = _start(chosen, network, directory, journal, stack)
            show("the brokers run")
            _live(chosen, world, seconds, verdict, show)
            verdict.problems += closing.compare_replicas(journal, world.brokers, TOPICS)
        except Exception as error:
            verdict.problems.append(f"{type(error).__name__}: {error}")
            with (directory / "threads.txt").open("w") as threads:
                traceback.print_exception(error, file=threads)
                faulthandler.dump_traceback(threads)
    verdict.problems += journal.failures
    verdict.problems += map(str, judge(journal))
    verdict.setbacks = journal.setbacks
    verdict.figures["acknowledged records"] = journal.acknowledged
    verdict.figures["committed transactions"] = journal.committed_transactions
    verdict.figures["seconds"] = int(time.monotonic() - began)
    if verdict.problems:
        (directory / "history.txt").write_text(str(journal.history))
    return verdict


def _live(chosen: Round, world: World, seconds: float, verdict: Verdict, show: Show) -> None:
    """From the first record to the last, and until all brokers have stopped in order."""
    journal, brokers = world.journal, world.brokers
    load = Load(f"{chosen.seed} {chosen.number}", chosen.rate)
    workload = Workload(journal, load, brokers.bootstrap)
    workload.start()
    try:
        journal.until_all_move(STARTED_WITHIN_S)
        show("all clients are at work")
        _suffer(chosen, world, time.monotonic() + seconds, verdict, show)
        workload.end_writing()
        last = closing.read_logs(journal, brokers.bootstrap, load.topics)
        show("all that was written is read by one")
        closing.drain(journal, last)
        show("and by everybody else")
        closing.ask_commits(journal, brokers.bootstrap)
    finally:
        verdict.figures.update(world.figures)
        workload.end_reading()
    closing.read_logs(journal, brokers.bootstrap, (COPY,))
    for number in world.running:
        brokers.end(brokers.brokers.pop(number))
    show("all brokers have stopped")


def judge(journal: Journal) -> list[object]:
    events = journal.history.events
    idempotent = {event.producer for _, event in events if isinstance(event, Sent) and not event.transaction}
    return [*anomalies(events, Expectations(safe_topics=TOPICS, idempotent_producers=idempotent))]


def _start(chosen: Round, network: Network, directory: Path, journal: Journal, stack: ExitStack) -> World:
    store: dict[str, str] = {}
    ensemble = None
    if chosen.shape.store == "zookeeper":
        ensemble = Ensemble(directory, network)
        stack.callback(ensemble.close)
        store["zookeeper.connect"] = ensemble.connect
    numbers = tuple(range(1, chosen.shape.brokers + 1))
    brokers = Brokers(directory, network, numbers, store)
    small = chosen.random("disk").choice(numbers)
    disk = SmallDisk(brokers.data_dir(small))
    stack.callback(disk.remove)
    stack.callback(brokers.close)
    brokers.start_together(numbers)
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
    wanted = [NewTopic(topic, PARTITIONS, REPLICAS) for topic in TOPICS]
    for future in admin.create_topics(wanted, operation_timeout=STARTED_WITHIN_S).values():
        future.result(STARTED_WITHIN_S)
    _make_coordinators(brokers)
    world = World(network, brokers, ensemble, (small, disk), journal, TOPICS)
    stack.callback(world.close)
    return world


def _make_coordinators(brokers: Brokers) -> None:
    """Their topics get as many replicas as there are brokers alive when somebody first asks for a coordinator."""
    address = brokers.address(brokers.numbers[0])
    eventually(lambda: living_brokers(address), set(brokers.numbers), STARTED_WITHIN_S)
    asking = Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": "nobody", "log_level": 0})
    asking.committed([Position(COPY, 0)], timeout=STARTED_WITHIN_S)
    asking.close()
    Producer({"bootstrap.servers": brokers.bootstrap, "transactional.id": "nobody", "log_level": 0}).init_transactions(
        STARTED_WITHIN_S
    )


def _suffer(chosen: Round, world: World, until: float, verdict: Verdict, show: Show) -> None:
    for number, scene in enumerate(chosen.scenes()):
        if time.monotonic() >= until:
            return
        began = time.monotonic()
        hits = play(world, scene)
        for planned in scene:
            verdict.faults[planned.kind] += 1
        recovery = f"mended after {time.monotonic() - began:.1f} s, {world.recover()}"
        show(f"scene {number}: {'; '.join(hits)}: {recovery}; {world.journal.acknowledged:,} acknowledged")
    raise AssertionError("a plan has no end")


def play(world: World, scene: Scene) -> list[str]:
    """Carry out the faults of a scene, each at its time; whom they hit."""
    began = time.monotonic()
    hits: list[str] = []
    with ExitStack() as everything:
        begins = [(planned.after_s, 1, index) for index, planned in enumerate(scene)]
        ends = [(planned.after_s + planned.seconds, 0, index) for index, planned in enumerate(scene)]
        lasting: dict[int, ExitStack] = {}
        for at, is_begin, index in sorted([*begins, *ends]):
            time.sleep(max(0.0, began + at - time.monotonic()))
            planned = scene[index]
            if is_begin:
                lasting[index] = everything.enter_context(ExitStack())
                hits.append(_begin(world, planned, lasting[index]))
            else:
                lasting.pop(index).close()
                world.note(f"{planned.kind}: mended", planned.role)
    return hits


def _begin(world: World, planned: Planned, lasting: ExitStack) -> str:
    hit = lasting.enter_context(FAULTS[planned.kind](world, planned))
    world.note(planned.kind, planned.role, hit)
    return f"{planned.kind} ({planned.role}: {hit})"
