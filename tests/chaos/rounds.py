"""One round: a cluster, its clients, one scene of faults after the other, and the verdict on what everybody saw."""

from __future__ import annotations

import faulthandler
import multiprocessing
import pickle
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
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
from tests.checker.history import Event, Sent
from tests.cluster.three_brokers import living_brokers
from tests.peers import eventually

STARTED_WITHIN_S = 150.0
PROMPT_S = 1.0
"""Who waits longer for an answer may have asked again."""
TOPICS = (*Load.topics, COPY)
Show = Callable[[str], None]
_NOT_YET = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


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
    round: Round
    directory: Path
    """What the processes left."""
    figures: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    setbacks: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    judging: Judging | None = None

    def close(self) -> None:
        """Wait for what the checker has found."""
        if self.judging is not None:
            self.problems += self.judging.problems()
            self.judging = None


class Judging:
    """The checker at work in a process of its own: the next round need not wait for it."""

    def __init__(self, journal: Journal, directory: Path, is_bad: bool) -> None:
        context = multiprocessing.get_context("fork")  # a history is too long to be handed over
        self._pipe, sending = context.Pipe(duplex=False)
        self._process = context.Process(target=_judge, args=(journal, directory, is_bad, sending), daemon=True)
        self._process.start()
        sending.close()

    def problems(self) -> list[str]:
        try:
            found: list[str] = self._pipe.recv()
        except EOFError:
            found = ["the checker ended without a verdict"]
        self._process.join()
        return found


def _judge(journal: Journal, directory: Path, is_bad: bool, found: Connection) -> None:
    """What the checker finds in a history; that of a bad round is kept, to be read and to be judged again."""
    try:
        problems = [str(anomaly) for anomaly in judge(journal.history.events)]
    except Exception:
        problems = [f"the checker cannot judge this history:\n{traceback.format_exc()}"]
    if problems or is_bad:
        (directory / "history.txt").write_text(str(journal.history))
        (directory / "history.pickle").write_bytes(pickle.dumps(journal.history.events))
    found.send(problems)


def plan_text(chosen: Round, count: int) -> str:
    lines = [f"round {chosen.number}: {chosen.shape}"]
    lines += [
        f"  {number:3d}  {'; '.join(map(str, scene))}" for number, scene in enumerate(islice(chosen.scenes(), count))
    ]
    return "\n".join(lines)


def run(chosen: Round, seconds: float, network: Network, directory: Path, show: Show) -> Verdict:
    """All problems are in the verdict once it is closed."""
    verdict = Verdict(chosen, directory)
    journal = Journal()
    began = time.monotonic()
    with ExitStack() as stack:
        try:
            world = _start(chosen, network, directory, journal, stack)
            show("the brokers run")
            _live(chosen, world, seconds, verdict, show)
            verdict.problems += closing.compare_replicas(journal, world.brokers, TOPICS)
            verdict.problems += closing.read_complaints(world.brokers)
            verdict.figures["sent again by librdkafka"] += closing.note_sent_again(journal, world.brokers)
        except Exception as error:
            verdict.problems.append(f"{type(error).__name__}: {error}")
            with (directory / "threads.txt").open("w") as threads:
                traceback.print_exception(error, file=threads)
                faulthandler.dump_traceback(threads)
    verdict.problems += journal.failures
    verdict.judging = Judging(journal, directory, bool(verdict.problems))
    verdict.setbacks = journal.setbacks
    verdict.figures["acknowledged records"] = journal.acknowledged
    verdict.figures["committed transactions"] = journal.committed_transactions
    verdict.figures["seconds"] = int(time.monotonic() - began)
    return verdict


def _live(chosen: Round, world: World, seconds: float, verdict: Verdict, show: Show) -> None:
    """From the first record to the last, and until all brokers have stopped in order."""
    journal, brokers = world.journal, world.brokers
    load = Load(f"{chosen.seed} {chosen.number}", chosen.rate)
    workload = Workload(journal, load, brokers.bootstrap, verdict.directory)
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


def judge(events: Sequence[tuple[float, Event]]) -> list[object]:
    idempotent = {event.producer for _, event in events if isinstance(event, Sent) and not event.transaction}
    expected = Expectations(idempotent_producers=idempotent, prompt_s=PROMPT_S)
    return [*anomalies(events, expected)]


def _start(chosen: Round, network: Network, directory: Path, journal: Journal, stack: ExitStack) -> World:
    store: dict[str, str] = {}
    ensemble = None
    if chosen.shape.store == "zookeeper":
        ensemble = Ensemble(directory, network)
        stack.callback(ensemble.close)
        store["zookeeper.connect"] = ensemble.connect
    numbers = tuple(range(1, chosen.shape.brokers + 1))
    brokers = Brokers(directory, network, numbers, store, chosen.number)
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
    """Before the load begins: its clients need not find out how long that takes."""
    address = brokers.address(brokers.numbers[0])
    eventually(lambda: living_brokers(address), set(brokers.numbers), STARTED_WITHIN_S)
    asking = Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": "nobody", "log_level": 0})
    eventually(lambda: _knows_coordinator(asking), True, STARTED_WITHIN_S)
    asking.close()
    Producer({"bootstrap.servers": brokers.bootstrap, "transactional.id": "nobody", "log_level": 0}).init_transactions(
        STARTED_WITHIN_S
    )


def _knows_coordinator(asking: Consumer) -> bool:
    """A leader that has not heard of its leadership yet is none, and librdkafka passes that on to its caller."""
    try:
        asking.committed([Position(COPY, 0)], timeout=STARTED_WITHIN_S)
    except KafkaException as error:
        if error.args[0].code() not in _NOT_YET:
            raise
        return False
    return True


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
