"""Three ZooKeeper servers, each on a node of its own, that go on while two of them are there."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tests.chaos.network import Network, entering
from tests.peers import ZooKeeperServer

NUMBERS = (1, 2, 3)
NODES = tuple(f"zookeeper{number}" for number in NUMBERS)
_PORT, _PEERS, _ELECTION = 2181, 2888, 3888
_READY_WITHIN_S = 60.0


class Ensemble:
    def __init__(self, directory: Path, network: Network) -> None:
        self._directory = directory
        self._hosts = {number: network.add(node) for number, node in zip(NUMBERS, NODES)}
        self._stack = ExitStack()
        self.servers: dict[int, ZooKeeperServer] = {}
        for number in NUMBERS:
            self.start(number)
        for server in self.servers.values():
            server.wait_until(server.mode, _READY_WITHIN_S)

    @property
    def connect(self) -> str:
        return ",".join(f"{host}:{_PORT}" for host in self._hosts.values()) + "/chaos"

    def start(self, number: int) -> None:
        """It is there when it has joined the others, which is not waited for."""
        self.servers[number] = self._stack.enter_context(
            ZooKeeperServer(
                self._directory / NODES[number - 1],
                host=self._hosts[number],
                port=_PORT,
                number=number,
                ensemble=[f"server.{each}={host}:{_PEERS}:{_ELECTION}" for each, host in self._hosts.items()],
                wrapper=entering(NODES[number - 1]),
            )
        )

    def kill(self, number: int) -> None:
        self.servers.pop(number).kill()

    def leader(self) -> int | None:
        return next((number for number, server in self.servers.items() if server.mode() == "leader"), None)

    def close(self) -> None:
        for server in self.servers.values():
            server.kill()
        self._stack.close()
