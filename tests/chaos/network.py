"""Every node has a network namespace, as if it were a machine; all meet at a router, which can drop packets.

A cut has a direction. What is cut is neither refused nor reset: packets vanish, and each end learns of it by its
time-outs. Cuts overlap: a way is open again when the last cut of it has ended.
"""

from __future__ import annotations

import subprocess
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

CLIENTS = "clients"
"""The namespace of this process."""
_ROUTER = "router"
_NAMED = "/run/netns"

Way = tuple[str, str]
"""From one node to another."""


class Network:
    def __init__(self) -> None:
        """Needs network and mounts of its own (`namespaces`)."""
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
        subprocess.run(["mkdir", "-p", _NAMED], check=True)
        self._addresses: dict[str, str] = {}
        self._cuts: Counter[Way] = Counter()
        self._adding = threading.Lock()
        _ip("link set lo up", f"netns add {_ROUTER}", f"-n {_ROUTER} link set lo up")
        forward = "echo 1 > /proc/sys/net/ipv4/ip_forward"
        subprocess.run([*entering(_ROUTER), "sh", "-c", forward], check=True)
        self._connect(CLIENTS, "")

    def add(self, node: str) -> str:
        """The address of a node, which is made when it is first asked for."""
        with self._adding:  # brokers start together
            if node not in self._addresses:
                _ip(f"netns add {node}", f"-n {node} link set lo up")
                self._connect(node, node)
            return self._addresses[node]

    def _connect(self, node: str, namespace: str) -> None:
        number = len(self._addresses)
        link, router, address = f"to{number}", f"10.88.{number}.1", f"10.88.{number}.2"
        here = f"-n {namespace} " if namespace else ""
        there = f"netns {namespace}" if namespace else ""
        _ip(
            f"link add {link} netns {_ROUTER} type veth peer name eth0 {there}",
            f"-n {_ROUTER} addr add {router}/30 dev {link}",
            f"-n {_ROUTER} link set {link} up",
            f"{here}addr add {address}/30 dev eth0",
            f"{here}link set eth0 up",
            f"{here}route add default via {router}",
        )
        self._addresses[node] = address

    @contextmanager
    def cut(self, ways: Iterable[Way]) -> Iterator[None]:
        """No packet goes these ways meanwhile."""
        chosen = set(ways)
        added = [way for way in sorted(chosen) if not self._cuts[way]]
        self._cuts.update(chosen)
        _ip(*(self._rule("add", way) for way in added))
        try:
            yield
        finally:
            self._cuts.subtract(chosen)
            _ip(*(self._rule("del", way) for way in sorted(chosen) if not self._cuts[way]))

    def _rule(self, verb: str, way: Way) -> str:
        source, target = (self._addresses[node] for node in way)
        return f"-n {_ROUTER} rule {verb} blackhole from {source} to {target}"


def entering(node: str) -> tuple[str, ...]:
    """What stands before the command of a process that is to run on a node."""
    return ("nsenter", f"--net={_NAMED}/{node}", "--")


def both(some: Iterable[str], others: Iterable[str]) -> set[Way]:
    """The ways between two sets of nodes."""
    pairs = {(a, b) for a in some for b in others if a != b}
    return pairs | {(b, a) for a, b in pairs}


def ring(nodes: list[str]) -> set[Way]:
    """The ways that are cut where every node sees its two neighbours alone; with three, the first two do not meet."""
    if len(nodes) == 3:
        return both(nodes[:1], nodes[1:2])
    around = len(nodes)
    return {
        (a, b) for i, a in enumerate(nodes) for j, b in enumerate(nodes) if (i - j) % around not in (0, 1, around - 1)
    }


def _ip(*commands: str) -> None:
    for command in commands:
        done = subprocess.run(["ip", *command.split()], capture_output=True, text=True, timeout=20, check=False)
        if done.returncode:
            raise RuntimeError(f"ip {command}: {done.stderr.strip()}")
