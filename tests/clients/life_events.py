"""What happens to clients in a long life, in quick succession: brokers restart, leaders move, connections break."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import time
from collections import Counter
from contextlib import suppress
from random import Random

import psutil

from barnabas.client.admin.elections import Elections
from barnabas.client.admin.reassignments import Reassignments
from barnabas.client.client import connect
from barnabas.client.metadata import TopicPartition
from barnabas.client.outcomes import PartlyFailed
from tests.cluster.three_brokers import NUMBERS, Cluster, in_sync, seconds_until

IN_SYNC_WITHIN_S = 120.0


class Events:
    """Two kinds run side by side: connections are cut all the time, and something happens to the brokers."""

    def __init__(self, cluster: Cluster, topics: list[str], partitions: int, random: Random) -> None:
        self.happened: Counter[str] = Counter()
        self._cluster = cluster
        self._topics = topics
        self._partitions = partitions
        self._random = random
        self._ports = {int(cluster.address(number).rpartition(":")[2]) for number in NUMBERS}

    async def cut_connections(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            self.happened["connections cut"] += self._cut()

    def _cut(self) -> int:
        """Shut down some connections of this process to the brokers, in the middle of whatever they carry."""
        count = 0
        for connection in psutil.Process().net_connections("tcp"):
            if connection.raddr and connection.raddr.port in self._ports and self._random.random() < 0.5:
                try:
                    with socket.socket(fileno=os.dup(connection.fd)) as other_handle:
                        other_handle.shutdown(socket.SHUT_RDWR)
                        count += 1
                except OSError:
                    pass  # it is not connected yet, or not any more
        return count

    async def disturb_brokers(self, until: float) -> None:
        """One event after the other, each begun with all replicas in sync, so that clients can go on meanwhile.

        Every kind comes at least once.
        """
        acts = [self._stop_and_start, self._move_leaders, self._crash_and_start, self._move_leaders]
        for number in itertools.count():
            if number >= len(acts) and time.monotonic() >= until:
                break
            await self._until_in_sync()
            await acts[number % len(acts)]()
        await self._until_in_sync()

    async def _stop_and_start(self) -> None:
        number = self._random.choice(NUMBERS)
        await asyncio.to_thread(self._cluster.stop, number)
        await asyncio.to_thread(self._cluster.start, number)
        self.happened["brokers restarted"] += 1

    async def _crash_and_start(self) -> None:
        number = self._random.choice(NUMBERS)
        await asyncio.to_thread(self._cluster.kill, number)
        await asyncio.to_thread(self._cluster.start, number)
        self.happened["brokers crashed"] += 1

    async def _move_leaders(self) -> None:
        """Every partition gets another order of its replicas, and the first one leads."""
        wanted = {
            TopicPartition(topic, partition): tuple(self._random.sample(NUMBERS, len(NUMBERS)))
            for topic in self._topics
            for partition in range(self._partitions)
        }
        async with connect(self._cluster.bootstrap) as client:
            with suppress(PartlyFailed):  # a broker that is down cannot lead now
                await Reassignments(client).alter(wanted)  # the same replicas: done at once
                await Elections(client).preferred(wanted)
        self.happened["leaders moved"] += len(wanted)

    async def _until_in_sync(self) -> None:
        def all_in_sync() -> bool:
            try:
                told = [in_sync(self._cluster.address(number), topic) for number in NUMBERS for topic in self._topics]
            except OSError:  # our own connections are cut too
                return False
            return all(members == set(NUMBERS) for known in told for members in known.values())

        await asyncio.to_thread(seconds_until, all_in_sync, IN_SYNC_WITHIN_S)
