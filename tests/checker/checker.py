"""Judges a history: whatever clients were told must fit one log per partition and Kafka's promises. A pure function.

Simulation and real processes write the same history (`tests.checker.history`). It is read once (`facts`); then each
rule looks for one kind of anomaly and tells it by its name, with the events that show it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from tests.checker import cluster, commits, cycles, logs, reads, transactions
from tests.checker.anomaly import Anomaly, Name
from tests.checker.expectations import NOTHING_SPECIAL, Expectations
from tests.checker.facts import Facts
from tests.checker.history import Event

RULES: tuple[Callable[[Facts], Iterator[Anomaly]], ...] = (
    logs.lost_writes,
    logs.lost_writes_without_offset,
    logs.duplicates,
    logs.inconsistent_offsets,
    logs.phantoms,
    logs.nonmonotonic_sends,
    logs.gaps,
    logs.trims,
    reads.polls,
    reads.unseen,
    transactions.aborted_reads,
    transactions.precommitted_reads,
    transactions.double_processing,
    transactions.unprocessed,
    transactions.two_outcomes,
    cycles.dirty_cycles,
    commits.lost_commits,
    commits.backward_commits,
    cluster.recoveries,
    cluster.unclean_elections,
    cluster.producer_ids,
    cluster.forgotten_sequences,
    cluster.replicas,
)


def anomalies(events: Iterable[tuple[float, Event]], expectations: Expectations = NOTHING_SPECIAL) -> list[Anomaly]:
    """What is wrong with a history, in the order in which it came to light; of each kind in each place one."""
    facts = Facts(tuple(events), expectations)
    found: dict[tuple[Name, str], Anomaly] = {}
    counts: Counter[tuple[Name, str]] = Counter()
    for rule in RULES:
        for anomaly in rule(facts):
            kind = (anomaly.name, anomaly.where)
            found.setdefault(kind, anomaly)
            counts[kind] += 1
    counted = (replace(anomaly, others=counts[kind] - 1) for kind, anomaly in found.items())
    return sorted(counted, key=lambda anomaly: anomaly.evidence[-1].at)
