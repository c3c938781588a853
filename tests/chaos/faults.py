"""How each kind of fault is carried out: a context in which it lasts, which tells whom it hit.

Mending does not wait for what other faults may hold up: that is left to `World.later`.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from random import Random

from tests.chaos import damage
from tests.chaos.brokers import node_of
from tests.chaos.clocks import HOUR_S
from tests.chaos.ensemble import NODES
from tests.chaos.faults_members import added_and_removed, replicas_moved
from tests.chaos.network import CLIENTS, Way, both, ring
from tests.chaos.plan import Planned
from tests.chaos.world import SCRUBBED_WITHIN_S, World

Carrying = Callable[[World, Planned], AbstractContextManager[str]]


# processes


@contextmanager
def killed(world: World, planned: Planned) -> Iterator[str]:
    numbers = world.targets(planned)
    world.brokers.kill(*numbers)
    world.count("kills", len(numbers))
    yield f"{numbers}"
    for number in numbers:
        world.start(number)


@contextmanager
def crashing(world: World, planned: Planned) -> Iterator[str]:
    """A broker that dies soon after each start, until the fault is mended."""
    numbers = world.targets(planned)
    is_over = threading.Event()
    world.brokers.kill(*numbers)
    world.count("kills", len(numbers))
    for number in numbers:
        world.later(_crash_again, world, number, is_over, Random(planned.choice))
    yield f"{numbers}"
    is_over.set()


def _crash_again(world: World, number: int, is_over: threading.Event, random: Random) -> None:
    while True:
        broker = world.brokers.start(number)
        world.note("start", number)
        if is_over.wait(random.uniform(0, 2)) or world.brokers.brokers.pop(number, None) is None:
            return  # it is left alone from now on, or left to another fault
        world.brokers.check_alive(broker)
        broker.kill()
        world.count("kills", 1)
        world.note("crash again", number)


@contextmanager
def stopped(world: World, planned: Planned) -> Iterator[str]:
    """In order, which may take until other faults are mended; then it is started again."""
    numbers = world.targets(planned)
    ending = {number: world.later(world.brokers.end, world.brokers.brokers.pop(number)) for number in numbers}
    world.count("clean stops", len(numbers))
    yield f"{numbers}"
    for number, ended in ending.items():
        world.start(number, after=ended)


@contextmanager
def paused(world: World, planned: Planned) -> Iterator[str]:
    numbers = world.targets(planned)
    processes = {number: world.brokers.brokers.pop(number) for number in numbers}
    for broker in processes.values():
        broker.process.send_signal(signal.SIGSTOP)
    world.count("pauses", len(numbers))
    try:
        yield f"{numbers}"
    finally:
        for broker in processes.values():
            broker.process.send_signal(signal.SIGCONT)
        world.brokers.brokers.update(processes)


# the network


def _network(ways: Callable[[World, str], set[Way]]) -> Carrying:
    """A cut of the ways that a broker's node stands for."""

    @contextmanager
    def carry_out(world: World, planned: Planned) -> Iterator[str]:
        numbers = world.targets(planned)
        chosen = {way for number in numbers for way in ways(world, node_of(number))}
        hidden = [number for number in numbers if {(CLIENTS, node_of(number)), (node_of(number), CLIENTS)} & chosen]
        world.hidden.update(hidden)
        world.count("cuts", 1)
        with world.network.cut(chosen):
            yield f"{numbers}"
        world.hidden.subtract(hidden)

    return carry_out


def _brokers(world: World) -> list[str]:
    return [node_of(number) for number in sorted({*world.brokers.numbers, *world.running})]


def _store(world: World) -> list[str]:
    return [] if world.ensemble is None else list(NODES)


def _from_all(world: World, node: str) -> set[Way]:
    return both([node], [*_brokers(world), *_store(world), CLIENTS])


def _from_brokers(world: World, node: str) -> set[Way]:
    """Clients go on talking to it."""
    return both([node], [*_brokers(world), *_store(world)])


def _outgoing(world: World, node: str) -> set[Way]:
    return {(node, other) for other in _brokers(world) if other != node}


def _incoming(world: World, node: str) -> set[Way]:
    return {(other, node) for other in _brokers(world) if other != node}


def _outgoing_to_all(world: World, node: str) -> set[Way]:
    """It hears everybody, and nobody hears it."""
    return {way for way in _from_all(world, node) if way[0] == node}


def _incoming_from_all(world: World, node: str) -> set[Way]:
    return {way for way in _from_all(world, node) if way[1] == node}


def _from_store(world: World, node: str) -> set[Way]:
    return both([node], _store(world))


@contextmanager
def ring_cut(world: World, planned: Planned) -> Iterator[str]:
    brokers = _brokers(world)
    nodes = Random(planned.choice).sample(brokers, len(brokers))
    world.count("cuts", 1)
    with world.network.cut(ring(nodes)):
        yield " ".join(nodes)


# ZooKeeper


@contextmanager
def zookeeper_leader_killed(world: World, _: Planned) -> Iterator[str]:
    ensemble = world.ensemble
    assert ensemble is not None
    leader = ensemble.leader()
    if leader is None:  # they are about to elect one
        yield "nobody"
        return
    ensemble.kill(leader)
    world.count("ZooKeeper leaders killed", 1)
    yield NODES[leader - 1]
    ensemble.start(leader)


@contextmanager
def zookeeper_leader_cut_off(world: World, _: Planned) -> Iterator[str]:
    ensemble = world.ensemble
    assert ensemble is not None
    leader = ensemble.leader()
    node = NODES[(leader or 1) - 1]
    world.count("cuts", 1)
    with world.network.cut(both([node], [*NODES, *_brokers(world)])):
        yield node


# disks and files


@contextmanager
def disk_filled(world: World, _: Planned) -> Iterator[str]:
    """Room alone does not bring back a disk that has failed: its broker is started again."""
    number, disk = world.small_disk
    disk.fill()
    world.count("full disks", 1)
    yield f"[{number}]"
    disk.make_room()
    if number in world.brokers.brokers:
        world.brokers.kill(number)
        world.start(number)


@contextmanager
def bit_flipped_in_a_segment(world: World, planned: Planned) -> Iterator[str]:
    """Under a running broker, in what all readers have read: where librdkafka finds a wrong checksum, it goes back."""
    random = Random(planned.choice)
    (number,) = world.targets(planned)
    segments = [
        segment
        for segment, end_offset in damage.old_segments(world.brokers.data_dir(number), world.topics)
        if end_offset <= world.journal.read_by_all(segment.parent.name)
    ]
    if not segments:
        yield "no old segment yet"
        return
    segment = random.choice(segments)
    how = damage.flip_a_bit(segment, random)
    world.count("damaged files", 1)
    yield f"[{number}] {how}"
    world.later(_until_whole, segment.parent)


def _until_whole(place: Path) -> None:
    """The broker has found the damage, and fetched its replica anew, if that has not gone elsewhere."""
    deadline = time.monotonic() + SCRUBBED_WITHIN_S
    while problem := _damage_in(place):
        if time.monotonic() > deadline:
            raise AssertionError(f"damage not mended after {SCRUBBED_WITHIN_S:.0f} s: {place.name}: {problem}")
        time.sleep(0.2)


def _damage_in(place: Path) -> str:
    """What is wrong with the segments that nothing is appended to."""
    try:
        return damage.batches(sorted(place.glob("*.log"))[:-1])[1]
    except FileNotFoundError:
        return "it is being replaced"


def _damaged_while_down(files: Callable[..., list[Path]], *how: damage.Damage) -> Carrying:
    """A broker crashes, and finds a file damaged when it starts again."""

    @contextmanager
    def carry_out(world: World, planned: Planned) -> Iterator[str]:
        random = Random(planned.choice)
        (number,) = world.targets(planned)
        world.brokers.kill(number)
        world.count("kills", 1)
        found = files(world.brokers.data_dir(number), world.topics)
        done = random.choice(how)(random.choice(found), random) if found else "nothing, for there is no such file yet"
        world.count("damaged files", bool(found))
        yield f"[{number}] {done}"
        world.start(number)

    return carry_out


@contextmanager
def clock_stepped(world: World, planned: Planned) -> Iterator[str]:
    """Of brokers that are down too: they find another time when they start."""
    numbers = world.targets(planned) or list(world.brokers.numbers)
    off_by_s = Random(planned.choice).choice((-HOUR_S, HOUR_S))
    for number in numbers:
        world.brokers.clocks[number].set(off_by_s)
    world.count("clock steps", len(numbers))
    yield f"{numbers} by {off_by_s:+d} s"
    for number in numbers:
        world.brokers.clocks[number].set(0)


FAULTS: dict[str, Carrying] = {
    "kill": killed,
    "crash again and again": crashing,
    "stop": stopped,
    "pause": paused,
    "cut off": _network(_from_all),
    "cut off from brokers": _network(_from_brokers),
    "cut outgoing": _network(_outgoing),
    "cut incoming": _network(_incoming),
    "cut all outgoing": _network(_outgoing_to_all),
    "cut all incoming": _network(_incoming_from_all),
    "ring": ring_cut,
    "cut off from zookeeper": _network(_from_store),
    "cut off zookeeper's leader": zookeeper_leader_cut_off,
    "kill zookeeper's leader": zookeeper_leader_killed,
    "fill disk": disk_filled,
    "flip a bit in a segment": bit_flipped_in_a_segment,
    "cut the end of a segment": _damaged_while_down(damage.last_segments, damage.cut_the_end),
    "damage an index": _damaged_while_down(damage.indexes, damage.flip_a_bit, damage.cut_the_end),
    "damage a checkpoint": _damaged_while_down(damage.checkpoints, damage.flip_a_bit, damage.cut_the_end),
    "step clock": clock_stepped,
    "add and remove a broker": added_and_removed,
    "move replicas": replicas_moved,
}
