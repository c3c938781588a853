"""Leaders change, followers fall silent and come back, while records are written: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from barnabas.cluster.isr import Lag
from barnabas.core.errors import ErrorCode, KafkaError
from tests.unit.cluster.replica_cluster import ReplicaCluster, eventually, log_bytes, placed, running
from tests.unit.storage.storage_helpers import values

STEPS = 60
BROKERS = (1, 2, 3)


class Course:
    """A course of events by chance, and what was promised in it."""

    def __init__(self, cluster: ReplicaCluster, chance: Random) -> None:
        self.cluster = cluster
        self.chance = chance
        self.acknowledged: list[bytes] = []
        self.sent = 0

    async def write(self) -> None:
        cluster, leader = self.cluster, self.cluster.registration().leader
        for _ in range(self.chance.randint(1, 5)):
            value = b"%d" % self.sent
            self.sent += 1
            try:
                info = cluster.append(leader, value)
            except KafkaError:  # too few in sync, or no longer the leader
                continue
            cluster.brokers[leader].partition().when_acknowledged(
                info, -1, lambda code, value=value: self._settled(code, value)  # type: ignore[misc]
            )  # fmt: skip

    def _settled(self, code: ErrorCode, value: bytes) -> None:
        if code is ErrorCode.NONE:
            self.acknowledged.append(value)

    async def elect(self) -> None:
        isr = self.cluster.registration().isr
        await self.cluster.elect(self.chance.choice(isr), isr)

    async def silence(self) -> None:
        broker = self.cluster.brokers[self.chance.choice(BROKERS)]
        broker.replicas.fetchers = None
        await broker.fetchers.close()

    async def speak(self) -> None:
        for broker in self.cluster.brokers.values():
            broker.replicas.fetchers = broker.fetchers
            broker.fetchers.follow(broker.partition())

    async def wait(self) -> None:
        await asyncio.sleep(self.chance.random() * 0.1)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_was_acknowledged_is_on_all_replicas_in_the_end(tmp_path: Path, seed: int) -> None:
    async def scenario() -> None:
        async with running(tmp_path, lag=Lag(time_ms=60), min_insync_replicas=2) as cluster:
            await cluster.create(placed(*BROKERS))
            course = Course(cluster, Random(seed))
            kinds = [course.write] * 4 + [course.wait] * 3 + [course.elect, course.silence, course.speak]
            for _ in range(STEPS):
                await course.chance.choice(kinds)()
            await course.speak()
            await eventually(lambda: set(cluster.registration().isr) == set(BROKERS))
            leader = cluster.registration().leader
            cluster.append(leader, b"last", acks=1)
            end = cluster.brokers[leader].log.log_end_offset
            logs = [broker.log for broker in cluster.brokers.values()]
            await eventually(lambda: {log.high_watermark for log in logs} == {end})
            assert len({log_bytes(log) for log in logs}) == 1
            kept = values(logs[0])
            assert [value for value in kept if value in set(course.acknowledged)] == sorted(
                course.acknowledged, key=int
            )
            assert len(course.acknowledged) > 10
            assert len(set(kept)) == len(kept)

    asyncio.run(scenario())
