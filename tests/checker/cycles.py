"""Rules about the order of transactions: G0, a cycle of writes, and G1c, a cycle with reads in it.

One transaction comes before another if its record is before the other's in a partition (`ww`, only where writes are
isolated), or if the other has read its record (`wr`). Of every knot of transactions that all come before each other the
smallest cycle is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from tests.checker.anomaly import Anomaly, Name, short
from tests.checker.facts import Facts, Log, Sighting
from tests.checker.history import Polled, TopicPartition


class Edge(NamedTuple):
    """Why one transaction comes before another."""

    kind: str
    before: str
    after: str
    partition: TopicPartition
    values: tuple[bytes, ...]
    indexes: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.before} -{self.kind}-> {self.after} by {short(self.values[0])}"


Graph = dict[str, dict[str, Edge]]


def dirty_cycles(facts: Facts) -> Iterator[Anomaly]:
    logs = [_Writes(facts, log) for log in facts.logs()] if facts.expectations.isolated_writes else []
    reads = list(_reads(facts))
    for knot in _knots(_graph([*(edge for log in logs for edge in log.to_next()), *reads])):
        writes = [edge for log in logs for edge in log.to_all_later(knot)]
        among = [edge for edge in reads if edge.before in knot and edge.after in knot]
        yield _told(facts, _smallest_cycle(_graph([*writes, *among])))


def _told(facts: Facts, cycle: list[Edge]) -> Anomaly:
    is_of_writes = all(edge.kind == "ww" for edge in cycle)
    return Anomaly(
        Name.WRITE_CYCLE if is_of_writes else Name.INFORMATION_CYCLE,
        ", ".join(dict.fromkeys(str(edge.partition) for edge in cycle)),
        "; ".join(map(str, cycle)),
        facts.evidence((i for edge in cycle for i in edge.indexes), *(v for edge in cycle for v in edge.values)),
    )


def _reads(facts: Facts) -> Iterator[Edge]:
    """From each transaction to those that have read something of it, each once."""
    known: set[tuple[str, str]] = set()
    for index, event in facts.of(Polled):
        if event.transaction and event.read_committed:
            for _, value in event.records:
                writer = facts.sent(value).transaction if value in facts.sends else ""
                if writer and writer != event.transaction and (writer, event.transaction) not in known:
                    known.add((writer, event.transaction))
                    indexes = (facts.sends[value].at, index)
                    yield Edge("wr", writer, event.transaction, event.partition, (value,), indexes)


class _Writes:
    """What transactions have written to a log, in its order."""

    def __init__(self, facts: Facts, log: Log) -> None:
        self._facts = facts
        self._log = log
        sightings = (log.sightings[offset] for offset in log.offsets)
        self._order = [
            (name, each)
            for each in sightings
            if (name := facts.sent(each.value).transaction)
            if facts.is_visible(each.value)
        ]

    def to_next(self) -> Iterator[Edge]:
        for before, after in pairwise(self._order):
            if before[0] != after[0]:
                yield self._edge(*before, *after)

    def to_all_later(self, names: set[str]) -> Iterator[Edge]:
        first: dict[str, Sighting] = {}
        last: dict[str, tuple[int, Sighting]] = {}
        for place, (name, sighting) in enumerate(self._order):
            if name in names:
                first.setdefault(name, sighting)
                last[name] = (place, sighting)
        begun: list[str] = []
        for place, (name, sighting) in enumerate(self._order):
            if last.get(name, (-1,))[0] == place:
                yield from (self._edge(before, first[before], name, sighting) for before in begun if before != name)
            if first.get(name) is sighting:
                begun.append(name)

    def _edge(self, before: str, earlier: Sighting, after: str, later: Sighting) -> Edge:
        values = (earlier.value, later.value)
        indexes = (*self._facts.origin(*values), earlier.at, later.at)
        return Edge("ww", before, after, self._log.partition, values, indexes)


# graphs


def _graph(edges: Iterable[Edge]) -> Graph:
    graph: Graph = {}
    for edge in edges:
        graph.setdefault(edge.before, {}).setdefault(edge.after, edge)
        graph.setdefault(edge.after, {})
    return graph


def _knots(graph: Graph) -> Iterator[set[str]]:
    """The strongly connected components of more than one node (Kosaraju)."""
    backwards: dict[str, list[str]] = {node: [] for node in graph}
    for node, edges in graph.items():
        for after in edges:
            backwards[after].append(node)
    free = set(graph)
    for root in reversed(_by_end(graph)):
        if root in free:
            knot, waiting = set(), [root]
            free.discard(root)
            while waiting:
                node = waiting.pop()
                knot.add(node)
                fresh = [each for each in backwards[node] if each in free]
                free.difference_update(fresh)
                waiting += fresh
            if len(knot) > 1:
                yield knot


def _by_end(graph: Graph) -> list[str]:
    """The nodes in the order in which a search in depth leaves them."""
    left: list[str] = []
    entered: set[str] = set()
    for root in graph:
        path = [] if root in entered else [(root, iter(graph[root]))]
        entered.add(root)
        while path:
            node, rest = path[-1]
            following = next((each for each in rest if each not in entered), None)
            if following is None:
                left.append(node)
                path.pop()
            else:
                entered.add(following)
                path.append((following, iter(graph[following])))
    return left


def _smallest_cycle(graph: Graph) -> list[Edge]:
    smallest: list[Edge] = []
    for node in graph:
        smallest = _cycle_through(graph, node, len(smallest) or len(graph) + 1) or smallest
    return smallest


def _cycle_through(graph: Graph, start: str, limit: int) -> list[Edge]:
    """The shortest way from a node back to it, if it has fewer edges than the limit."""
    ways: dict[str, Edge] = {}
    nodes = [start]
    for _ in range(limit - 1):
        fresh = [edge for node in nodes for edge in graph[node].values() if edge.after not in ways]
        nodes = list(dict.fromkeys(edge.after for edge in fresh))
        for edge in fresh:
            ways.setdefault(edge.after, edge)
        if start in ways:
            cycle = [ways[start]]
            while cycle[-1].before != start:
                cycle.append(ways[cycle[-1].before])
            return cycle[::-1]
    return []
