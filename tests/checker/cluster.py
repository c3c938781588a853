"""Rules about what brokers do that no client sees: recoveries, elections, producer ids, replicas byte for byte."""

from __future__ import annotations

from collections.abc import Iterator

from tests.checker.anomaly import Anomaly, Name
from tests.checker.facts import Facts
from tests.checker.history import (
    FinalReplica,
    ProducerIdGiven,
    Recovered,
    SequenceForgotten,
    TopicPartition,
    UncleanElection,
)


def recoveries(facts: Facts) -> Iterator[Anomaly]:
    """A broker that opens a log again finds it as it was, or its beginning."""
    for index, event in facts.of(Recovered):
        if not event.is_prefix:
            what = "recovery left something else than the log's beginning"
            yield Anomaly(Name.BROKEN_RECOVERY, str(event.partition), what, (facts.moment(index),))


def unclean_elections(facts: Facts) -> Iterator[Anomaly]:
    for index, event in facts.of(UncleanElection):
        if event.partition.topic in facts.expectations.safe_topics:
            what = "an unclean election, though enough replicas had everything"
            yield Anomaly(Name.UNCLEAN_ELECTION, str(event.partition), what, (facts.moment(index),))


def producer_ids(facts: Facts) -> Iterator[Anomaly]:
    """A producer id and epoch are given once."""
    given: dict[tuple[int, int], int] = {}
    for index, event in facts.of(ProducerIdGiven):
        first = given.setdefault((event.producer_id, event.producer_epoch), index)
        if first != index:
            what = f"producer id {event.producer_id}, epoch {event.producer_epoch} was given twice"
            yield Anomaly(Name.SHARED_PRODUCER_ID, event.producer, what, facts.evidence((first, index)))


def forgotten_sequences(facts: Facts) -> Iterator[Anomaly]:
    """A broker forgets what a producer has sent only where it may have lost that."""
    for index, event in facts.of(SequenceForgotten):
        is_synced = event.partition.topic in facts.expectations.synced_topics
        if event.since_life == event.life or is_synced:
            what = f"the broker forgot what {event.producer} had sent"
            yield Anomaly(Name.FORGOTTEN_SEQUENCE, str(event.partition), what, (facts.moment(index),))


def replicas(facts: Facts) -> Iterator[Anomaly]:
    """Every replica is compared with the first, from where all of them begin, whoever knows of deletions."""
    firsts: dict[TopicPartition, tuple[int, FinalReplica]] = {}
    for index, event in facts.of(FinalReplica):
        first_index, first = firsts.setdefault(event.partition, (index, event))
        start = facts.trim_bounds.get(event.partition, 0)
        expected, found = ([b for b in each.batches if b[0] >= start] for each in (first, event))
        if found != expected:
            offset = next((a[0] for a, b in zip(expected, found) if a != b), None)
            where = f"at {offset}" if offset is not None else f"{len(found)} batches where {len(expected)} are"
            what = f"brokers {first.broker_id} and {event.broker_id} diverge: {where}"
            evidence = facts.evidence((first_index, index))
            yield Anomaly(Name.DIVERGED_REPLICAS, str(event.partition), what, evidence)
