"""Copying at a bounded rate: what a rate means, and whom it bounds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from barnabas.cluster.throttle import Throttle, names
from barnabas.core.broker_keys import MAX_LONG
from tests.unit.cluster.replica_cluster import ReplicaCluster, eventually, placed, running

RATE = 100_000
BATCH_BYTES = 10_000


class Line:
    """A sender that sends whenever it may."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.throttle = Throttle(lambda: self.rate)
        self.now = 1000.0
        self.throttle.wait_seconds(self.now)
        self.sent = 0

    def send(self, size_bytes: int) -> None:
        self.now += self.throttle.wait_seconds(self.now)
        self.throttle.record(size_bytes, self.now)
        self.sent += size_bytes


@pytest.mark.parametrize("size_bytes", [1, 100, 1000, 25_000])
def test_a_rate_holds_whatever_is_sent_at_a_time(size_bytes: int) -> None:
    line = Line(1000)
    started = line.now
    for _ in range(20_000 // size_bytes + 10):
        line.send(size_bytes)
    seconds = line.now - started
    assert (
        line.sent - size_bytes <= 1000 * (seconds + 1) + 1
    )  # what comes last is still owed, and a second comes at once
    assert line.sent >= 1000 * seconds


def test_idle_time_is_made_up_for_by_a_second_at_the_most() -> None:
    line = Line(1000)
    line.now += 60
    assert line.throttle.wait_seconds(line.now) == 0
    line.throttle.record(1500, line.now)
    assert line.throttle.wait_seconds(line.now) == pytest.approx(0.5)


def test_a_debt_is_paid_off_at_the_rate_of_the_day() -> None:
    line = Line(1)
    line.throttle.record(10_000, line.now)
    assert line.throttle.wait_seconds(line.now) > 9000
    line.rate = MAX_LONG
    line.now += 0.001
    assert line.throttle.wait_seconds(line.now) == 0


def test_nothing_is_sent_at_a_rate_of_zero_but_the_first_batch() -> None:
    line = Line(0)
    assert line.throttle.share_bytes == 1
    line.throttle.record(1000, line.now)
    assert line.throttle.wait_seconds(line.now + 500) > 0


@pytest.mark.parametrize(
    ("replicas", "is_named"),
    [
        ((), False),
        (("*",), True),
        (("3:1",), True),
        (("3:2", "1:3"), False),
        (("4:1", "3:1"), True),
        (("13:1",), False),
    ],
)
def test_a_topic_names_replicas_one_by_one_or_all(replicas: tuple[str, ...], is_named: bool) -> None:
    assert names(replicas, 3, 1) is is_named


async def seconds_to_copy(cluster: ReplicaCluster, batches: int) -> float:
    """How long a new replica takes."""
    await cluster.create(placed(1))
    for _ in range(batches):
        await cluster.produce(1, bytes(BATCH_BYTES))
    started = asyncio.get_running_loop().time()
    await cluster.change(replicas=(1, 2), partition_epoch=1)
    await eventually(lambda: cluster.registration().isr == (1, 2))
    return asyncio.get_running_loop().time() - started


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_new_replica_is_copied_at_the_rate_of_either_side(tmp_path: Path, side: str) -> None:
    async def scenario() -> None:
        throttled: dict[str, Any] = {f"{side}_replication_throttled_replicas": ("*",)}
        async with running(tmp_path, 2, **throttled) as cluster:
            setattr(cluster, f"{side}_rate", RATE)
            assert await seconds_to_copy(cluster, 30) > 30 * BATCH_BYTES / RATE - 1.5

    asyncio.run(scenario())


def test_a_replica_that_is_not_named_is_copied_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        throttled: dict[str, Any] = {
            "leader_replication_throttled_replicas": ("1:1",),
            "follower_replication_throttled_replicas": ("0:1",),
        }
        async with running(tmp_path, 2, **throttled) as cluster:
            cluster.leader_rate = cluster.follower_rate = 1
            await seconds_to_copy(cluster, 30)

    asyncio.run(scenario())


def test_replicas_in_sync_do_not_wait(tmp_path: Path) -> None:
    async def scenario() -> None:
        throttled: dict[str, Any] = {
            f"{side}_replication_throttled_replicas": ("*",) for side in ("leader", "follower")
        }
        async with running(tmp_path, 2, **throttled) as cluster:
            cluster.leader_rate = cluster.follower_rate = 1
            await cluster.create(placed(1, 2))
            for _ in range(30):
                await cluster.produce(1, bytes(BATCH_BYTES))

    asyncio.run(scenario())


def test_a_throttle_that_is_lifted_lets_the_rest_through(tmp_path: Path) -> None:
    async def scenario() -> None:
        throttled: dict[str, Any] = {
            f"{side}_replication_throttled_replicas": ("*",) for side in ("leader", "follower")
        }
        async with running(tmp_path, 2, **throttled) as cluster:
            cluster.leader_rate = cluster.follower_rate = 2 * BATCH_BYTES
            copying = asyncio.ensure_future(seconds_to_copy(cluster, 60))
            await asyncio.sleep(0.5)
            assert not copying.done()
            cluster.leader_rate = cluster.follower_rate = MAX_LONG
            await copying

    asyncio.run(scenario())
