"""Brokers as processes, each on a node of its own, with a clock that can be set; one has a disk that can be filled."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.chaos.clocks import Clock
from tests.chaos.network import Network, entering
from tests.cluster.three_brokers import Cluster
from tests.peers import BarnabasServer

FIRST_PORT = 9092
START_WITHIN_S = 90.0
STOP_WITHIN_S = 60.0
DISK_BYTES = 1 << 30
ROOM_BYTES = 64 << 10

SETTINGS = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "4",
    "log.segment.bytes": str(1 << 20),  # several segments, so that closed ones can be damaged
    "log.roll.ms": "20000",
    "barnabas.scrub.interval.ms": "1000",
    "log.retention.ms": "-1",  # a clock that is an hour ahead must not take anything away
    "broker.session.timeout.ms": "5000",
    "broker.heartbeat.interval.ms": "500",
    "zookeeper.session.timeout.ms": "4000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "500",
}


def node_of(number: int) -> str:
    return f"broker{number}"


class Brokers(Cluster):
    """`numbers` are the brokers that are always there; others come and go.

    Each round has a port of its own: clients of an earlier one that hang, and cannot be ended, would find the brokers
    of this one at their old addresses, and join its groups.
    """

    def __init__(
        self, directory: Path, network: Network, numbers: tuple[int, ...], store: Mapping[str, str], round_number: int
    ) -> None:
        super().__init__(directory, {**SETTINGS, **store})
        self._port = FIRST_PORT + round_number
        self.numbers = numbers
        self.clocks: dict[int, Clock] = {}
        self._network = network

    def serve(self, number: int, settings: Mapping[str, str]) -> BarnabasServer:
        node = node_of(number)
        clock = self.clocks.setdefault(number, Clock(self.directory / f"clock-{number}"))
        return BarnabasServer(
            self.data_dir(number),
            settings,
            arguments=("--host", self._network.add(node)),
            environment=clock.environment(),
            port=self._port,
            timeout=START_WITHIN_S,
            wrapper=entering(node),
        )

    def kill(self, *numbers: int) -> None:
        for number in numbers:
            self.check_alive(self.brokers[number])
        super().kill(*numbers)

    @staticmethod
    def check_alive(broker: BarnabasServer) -> None:
        """Before it is killed: what ends by itself is not mended in silence by the next start."""
        if (code := broker.process.poll()) is not None:
            raise AssertionError(f"{broker} has ended by itself, with {code}\n{broker.tail()}")

    @staticmethod
    def end(broker: BarnabasServer) -> None:
        """In order; with its controller out of reach that takes a while."""
        code = broker.stop(STOP_WITHIN_S)
        if code != 0:
            raise AssertionError(f"{broker} ended with {code} when it was asked to stop\n{broker.tail()}")

    def address(self, number: int) -> str:
        return f"{self._network.add(node_of(number))}:{self._port}"

    @property
    def bootstrap(self) -> str:
        return ",".join(map(self.address, self.numbers))

    def close(self) -> None:
        super().kill(*self.brokers)
        super().close()


class SmallDisk:
    """A disk in memory, under a broker's data. It is filled by making it as small as what is on it."""

    def __init__(self, place: Path) -> None:
        self._place = place
        place.mkdir(parents=True)
        self._mount(f"size={DISK_BYTES}")

    def fill(self) -> None:
        held = os.statvfs(self._place)
        used_bytes = (held.f_blocks - held.f_bfree) * held.f_frsize
        self._mount(f"remount,size={used_bytes + ROOM_BYTES}")

    def make_room(self) -> None:
        self._mount(f"remount,size={DISK_BYTES}")

    def remove(self) -> None:
        subprocess.run(["umount", "--lazy", str(self._place)], check=True)

    def _mount(self, options: str) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self._place)], check=True)
