"""The controller on leaders that are wished for: by an operator, or for the sake of balance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from barnabas.cluster.election import PartitionChanges
from barnabas.cluster.events import (
    PREFERRED_ELECTION,
    UNCLEAN_ELECTION,
    BalanceLeaders,
    ElectedLeader,
    ElectLeaders,
    Failure,
)
from barnabas.cluster.image import Image, Topic
from barnabas.cluster.outcome import Context, Outcome
from barnabas.cluster.partition_change import Election
from barnabas.cluster.records import NO_LEADER
from barnabas.core.errors import ErrorCode, KafkaError

MAX_MOVES = 1000  # of one balance, so that clients do not all look for their leaders at once

_ELECTIONS = {PREFERRED_ELECTION: Election.PREFERRED, UNCLEAN_ELECTION: Election.UNCLEAN}


def elect_leaders(image: Image, event: ElectLeaders, context: Context) -> Outcome:
    election = _ELECTIONS.get(event.election_type)
    if election is None:
        message = f"election type {event.election_type} is unknown: 0 elects preferred leaders, 1 any that live"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    changes = PartitionChanges(image, context.config)
    wanted = _all_partitions(image) if event.partitions is None else dict.fromkeys(event.partitions)
    results = []
    for name, number in wanted:
        error = _elect(image, name, number, election, changes)
        if event.partitions is None and error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED:
            continue
        results.append(ElectedLeader(name, number, error))
    return changes.outcome(tuple(results))


def _elect(image: Image, name: str, number: int, election: Election, changes: PartitionChanges) -> Failure | None:
    partition = image.partition(name, number)
    if partition is None:
        return Failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {name}-{number} does not exist")
    is_preferred = election is Election.PREFERRED
    if partition.leader == partition.replicas[0] or (not is_preferred and partition.leader != NO_LEADER):
        return Failure(ErrorCode.ELECTION_NOT_NEEDED, f"partition {name}-{number} is led by {partition.leader}")
    now = changes.add(image.topics[name], number, partition, election=election)
    if now is not partition:
        return None
    if is_preferred:
        message = f"broker {partition.replicas[0]}, preferred by {name}-{number}, is not in sync or does not live"
        return Failure(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message)
    return Failure(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no replica of {name}-{number} lives")


def _all_partitions(image: Image) -> Iterator[tuple[str, int]]:
    for topic in image.topics.values():
        for number in range(len(topic.partitions)):
            yield topic.name, number


def balance_leaders(image: Image, event: BalanceLeaders, context: Context) -> Outcome:
    """As many partitions as one balance may move; the next one goes on."""
    preferring: Counter[int] = Counter()
    missed: dict[int, list[tuple[Topic, int]]] = {}
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions):
            preferred = partition.replicas[0]
            preferring[preferred] += 1
            if partition.leader != preferred:
                missed.setdefault(preferred, []).append((topic, number))
    changes = PartitionChanges(image, context.config)
    for broker_id in sorted(missed.keys() & changes.may_lead):
        if 100 * len(missed[broker_id]) <= event.imbalance_percentage * preferring[broker_id]:
            continue
        for topic, number in missed[broker_id]:
            partition = topic.partitions[number]
            if broker_id in partition.isr and len(changes.records) < MAX_MOVES:
                changes.add(topic, number, partition, election=Election.PREFERRED)
    return changes.outcome(len(changes.records))
