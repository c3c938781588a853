"""The controller on reassignments: a partition moves to other brokers, or to more or fewer of them.

While it moves, the partition has its new replicas, and behind them those to be removed. Each step that brings it
nearer is an AlterPartition of the leader; the one that puts the last added replica in sync completes the move
(`partition_change`). A move can be redirected or cancelled until then: brokers that were to be added and are not
wanted any more go at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from barnabas.cluster.election import PartitionChanges
from barnabas.cluster.events import AlteredReassignment, AlterReassignments, Failure, Reassignment
from barnabas.cluster.image import Image, Partition
from barnabas.cluster.outcome import Context, Outcome
from barnabas.cluster.partition_change import settle
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True)
class OngoingReassignment:
    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def list_reassignments(
    image: Image, partitions: Iterable[tuple[str, int]] | None = None
) -> Iterator[OngoingReassignment]:
    """What moves now, of these partitions or of all."""
    if partitions is None:
        partitions = (
            (topic.name, number) for topic in image.topics.values() for number in range(len(topic.partitions))
        )
    for name, number in partitions:
        found = image.partition(name, number)
        if found and (found.adding_replicas or found.removing_replicas):
            yield OngoingReassignment(name, number, found.replicas, found.adding_replicas, found.removing_replicas)


def alter_reassignments(image: Image, event: AlterReassignments, context: Context) -> Outcome:
    times = Counter((wanted.topic, wanted.partition) for wanted in event.reassignments)
    changes = PartitionChanges(image, context.config)
    results: dict[tuple[str, int], AlteredReassignment] = {}
    for wanted in event.reassignments:
        error = None
        try:
            if times[wanted.topic, wanted.partition] > 1:
                raise _refused(ErrorCode.INVALID_REQUEST, wanted, "it is in the request more than once")
            _alter(image, wanted, event.allow_replication_factor_change, changes)
        except KafkaError as refusal:
            error = Failure(refusal.code, refusal.message)
        results[wanted.topic, wanted.partition] = AlteredReassignment(wanted.topic, wanted.partition, error)
    return changes.outcome(tuple(results.values()))


def _alter(image: Image, wanted: Reassignment, allow_factor_change: bool, changes: PartitionChanges) -> None:
    partition = image.partition(wanted.topic, wanted.partition)
    if partition is None:
        raise _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, wanted, "there is no such partition")
    before = tuple(replica for replica in partition.replicas if replica not in partition.adding_replicas)
    if wanted.replicas is not None:
        _check_target(image, wanted, wanted.replicas)
        if not allow_factor_change and len(wanted.replicas) != _factor(partition):
            problem = f"{len(wanted.replicas)} replicas are not the {_factor(partition)} that it has"
            raise _refused(ErrorCode.INVALID_REPLICATION_FACTOR, wanted, problem)
    elif not partition.adding_replicas and not partition.removing_replicas:
        raise _refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, wanted, "no reassignment is in progress")
    target = before if wanted.replicas is None else wanted.replicas
    topic = image.topics[wanted.topic]
    rules = changes.rules(topic)
    settled = settle(partition, _towards(image, partition, before, target), rules, changes.may_lead)
    after = settled.partition
    has_somebody = after.isr or after.eligible_leader_replicas or after.last_known_elr
    if not has_somebody or (settled.is_unclean and not rules.unclean):
        problem = "all that is known to be complete would go; wait, or allow unclean elections"
        raise _refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, wanted, problem)
    changes.accept(topic, wanted.partition, settled)


def _factor(partition: Partition) -> int:
    return len(partition.replicas) - len(partition.removing_replicas)


def _towards(image: Image, partition: Partition, before: tuple[int, ...], target: tuple[int, ...]) -> Partition:
    removing = tuple(replica for replica in before if replica not in target)
    replicas = (*target, *removing)
    directories = dict(zip(partition.replicas, partition.directories))
    return replace(
        partition,
        replicas=replicas,
        isr=tuple(replica for replica in partition.isr if replica in replicas),
        adding_replicas=tuple(replica for replica in target if replica not in before),
        removing_replicas=removing,
        directories=tuple(
            directories[replica] if replica in directories else image.brokers[replica].new_replica_directory
            for replica in replicas
        ),
    )


def _check_target(image: Image, wanted: Reassignment, replicas: tuple[int, ...]) -> None:
    problem = None
    unknown = [broker for broker in replicas if broker not in image.brokers]
    if not replicas:
        problem = "the list of replicas is empty"
    elif len(set(replicas)) < len(replicas):
        problem = f"replicas {list(replicas)[:10]} name a broker twice"
    elif unknown:
        problem = f"broker {unknown[0]} is not registered; there are {sorted(image.brokers)}"
    if problem:
        raise _refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, wanted, problem)


def _refused(code: ErrorCode, wanted: Reassignment, problem: str) -> KafkaError:
    return KafkaError(code, f"cannot reassign {wanted.topic}-{wanted.partition}: {problem}")
