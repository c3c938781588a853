"""Faults that are an operator's daily work: brokers that come and go, and replicas that move, while all else fails."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from random import Random

from barnabas.client.admin.reassignments import Reassignments
from barnabas.client.client import connect
from barnabas.client.metadata import TopicPartition
from barnabas.core.errors import KafkaError
from tests.chaos.load import PARTITIONS
from tests.chaos.plan import Planned
from tests.chaos.world import RECOVERED_WITHIN_S, REPLICAS, World
from tests.peers import barnabas_command

_COMMAND_WITHIN_S = 60
_MOVE_WITHIN_S = 10.0


@contextmanager
def added_and_removed(world: World, _: Planned) -> Iterator[str]:
    """A broker joins, takes its share of the replicas, gives them back, and is forgotten."""
    number = max(world.brokers.numbers) + 1
    joined = world.later(_join, world, number)
    world.count("brokers added and removed", 1)
    yield f"[{number}]"
    world.later(_retire, world, number, joined)


def _join(world: World, number: int) -> None:
    world.brokers.start(number)
    world.note("start", number)
    _succeed(world, "reassign", "--yes")


def _retire(world: World, number: int, joined: Future[object]) -> None:
    joined.result(2 * RECOVERED_WITHIN_S)
    _succeed(world, "reassign", "--drain", str(number), "--yes")
    deadline = time.monotonic() + RECOVERED_WITHIN_S
    while number not in world.brokers.brokers and time.monotonic() < deadline:
        time.sleep(0.1)  # it was hit by another fault, and comes back
    world.brokers.end(world.brokers.brokers.pop(number))
    _succeed(world, "forget", str(number))
    shutil.rmtree(world.brokers.data_dir(number))


def _succeed(world: World, *arguments: str) -> None:
    """Give a command until it is carried out: other faults, or another command, may be in its way."""
    command = barnabas_command("cluster", *arguments, "-b", world.brokers.bootstrap)
    deadline = time.monotonic() + RECOVERED_WITHIN_S
    while True:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_WITHIN_S, check=False)
            told = done.stderr if done.returncode else ""
        except subprocess.TimeoutExpired as error:
            told = str(error)
        if not told:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"`barnabas cluster {' '.join(arguments)}` does not succeed: {told}")
        time.sleep(0.5)


@contextmanager
def replicas_moved(world: World, planned: Planned) -> Iterator[str]:
    """Every partition gets other replicas, or the same ones in another order; who is down catches up later."""
    random = Random(planned.choice)
    wanted = {
        TopicPartition(topic, partition): tuple(random.sample(world.brokers.numbers, REPLICAS))
        for topic in world.topics
        for partition in range(PARTITIONS)
    }
    try:
        asyncio.run(_move(world.brokers.bootstrap, wanted))
    except (KafkaError, TimeoutError) as error:  # the controller is away, or a move is under way
        world.journal.setbacks[f"move of replicas: {type(error).__name__}"] += 1
        yield f"asked for {len(wanted)} partitions: {error!r}"
        return
    world.count("partitions moved", len(wanted))
    yield f"{len(wanted)} partitions"


async def _move(bootstrap: str, wanted: dict[TopicPartition, tuple[int, ...]]) -> None:
    async with asyncio.timeout(_MOVE_WITHIN_S), connect(bootstrap) as client:
        await Reassignments(client).alter(wanted)
