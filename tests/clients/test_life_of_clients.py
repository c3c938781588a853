"""A day in the life of clients, squeezed: what brokers and networks do to them in weeks happens here every second.

Connections are cut every second, for half a minute, and for three in the proof. Brokers restart and leaders move as
quickly as replicas come back in sync. Two idempotent producers write, two members of a group copy what they read in
transactions, two members of another group and a lone consumer read the copy. In the end nothing is lost or doubled,
every partition's order is kept, and no task, thread or socket is left.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import threading
import time
from pathlib import Path

import psutil
import pytest

from barnabas.client.admin.topics import Topics
from barnabas.client.client import connect
from tests.clients.life_events import Events
from tests.clients.life_work import COPY, PARTITIONS, SOURCE, Life
from tests.cluster.three_brokers import NUMBERS, Cluster, three_brokers

LIFE_S = 30.0
LONG_LIFE_S = float(os.environ.get("BARNABAS_TEST_LIFE_SECONDS", "180"))
CUT_EVERY_S = 1.0
END_WITHIN_S = 120.0
MOST_GROWTH_BYTES = 24 << 20
SETTINGS = {
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
}


async def live(cluster: Cluster, events: Events, life_s: float) -> tuple[Life, list[int]]:
    """All clients at work until the end; how much memory this process had meanwhile."""
    life = Life(cluster.bootstrap)
    async with connect(cluster.bootstrap) as client:
        for topic in (SOURCE, COPY):
            await Topics(client).create(topic, partitions=PARTITIONS, replication_factor=len(NUMBERS))
    memory: list[int] = []
    async with asyncio.TaskGroup() as group:
        cutting = group.create_task(events.cut_connections(CUT_EVERY_S))
        watching = group.create_task(watch_memory(memory))
        writers = [group.create_task(life.write(name)) for name in ("ann", "ben")]
        for name in ("one", "two"):
            group.create_task(life.copy(name))
            group.create_task(life.read(name))
        group.create_task(life.read_alone())
        await events.disturb_brokers(time.monotonic() + life_s)
        life.writing = False
        await asyncio.wait_for(asyncio.gather(*writers), END_WITHIN_S)
        await life.until_copied(END_WITHIN_S)
        life.copying = False
        cutting.cancel()
        watching.cancel()
    return life, memory


async def watch_memory(samples: list[int]) -> None:
    while True:
        await asyncio.sleep(0.5)
        samples.append(psutil.Process().memory_info().rss)


async def left_behind(cluster: Cluster, events: Events, life_s: float) -> tuple[Life, list[int], list[str]]:
    life, memory = await live(cluster, events, life_s)
    await asyncio.sleep(0)
    tasks = [repr(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    return life, memory, tasks


def open_things() -> tuple[int, set[str]]:
    """Descriptors of this process, and its threads."""
    gc.collect()
    return psutil.Process().num_fds(), {thread.name for thread in threading.enumerate()}


@pytest.mark.timeout(LONG_LIFE_S + 3 * END_WITHIN_S)
@pytest.mark.parametrize("life_s", [LIFE_S, pytest.param(LONG_LIFE_S, marks=pytest.mark.proof)])
def test_nothing_is_lost_doubled_or_leaked_in_a_life_full_of_events(tmp_path: Path, life_s: float) -> None:
    with three_brokers(tmp_path, SETTINGS) as cluster:
        before = open_things()
        events = Events(cluster, [SOURCE, COPY], PARTITIONS, random.Random(random.getrandbits(32)))
        life, memory, tasks = asyncio.run(left_behind(cluster, events, life_s))
        assert tasks == []
        assert open_things() == before

    assert life.anomalies() == []
    quarter = len(memory) // 4
    assert max(memory[-quarter:]) - max(memory[quarter : 2 * quarter]) < MOST_GROWTH_BYTES
    assert events.happened["connections cut"] > 10
