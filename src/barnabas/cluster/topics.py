"""The controller on topics: create, delete, add partitions.

Every item of a request is decided on what the items before it have done. A name may not collide with another in which
only `.` and `_` differ, because Kafka's metric names cannot tell them apart. Errors begin with Kafka's words, because
programs look for them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from barnabas.cluster import records as r
from barnabas.cluster.configs import check_values, config_records
from barnabas.cluster.election import elect
from barnabas.cluster.events import (
    CreatedPartitions,
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    DeletedTopic,
    DeleteTopics,
    Failure,
    NewPartitions,
    NewTopic,
    TopicReference,
)
from barnabas.cluster.image import NOTHING, TOPIC_RESOURCE, ConfigResource, Image, Topic
from barnabas.cluster.outcome import Context, Outcome
from barnabas.cluster.placement import place
from barnabas.core.errors import ErrorCode, KafkaError, shown
from barnabas.core.ids import ZERO_UUID, random_uuid
from barnabas.core.topic_keys import check_topic

MAX_NAME_LENGTH = 249  # what is left of a directory name's 255 once `-` and the partition are behind it
MAX_PARTITIONS_PER_REQUEST = 10_000
MAX_REPLICATION_FACTOR = 32_767
RESERVED_NAMES = frozenset({"__cluster_metadata"})

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def create_topics(image: Image, event: CreateTopics, context: Context) -> Outcome:
    times = Counter(topic.name for topic in event.topics)
    taken = {_collision_key(name): name for name in image.topics} if _may_collide(times) else {}
    records: list[r.Record] = []
    results: list[CreatedTopic] = []
    warnings: list[str] = []
    count = 0
    for topic in {topic.name: topic for topic in event.topics}.values():
        try:
            if times[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic '{topic.name}' is in the request more than once")
            check_name(topic.name)
            _check_new(image, topic.name, taken)
            check_values(topic.configs)
            warnings += check_topic(topic.configs)
            topic_id = random_uuid(context.rng)
            partitions = _new_partitions(image, topic_id, topic, context, already=count)
        except KafkaError as error:
            results.append(CreatedTopic(topic.name, error=Failure(error.code, error.message)))
            continue
        taken[_collision_key(topic.name)] = topic.name
        count += len(partitions)
        configs = {name: value for name, value in topic.configs.items() if value is not None}
        if not event.validate_only:
            records.append(r.TopicRecord(name=topic.name, topic_id=topic_id))
            records += config_records(ConfigResource(TOPIC_RESOURCE, topic.name), NOTHING, configs)
            records += partitions
        shown_id = ZERO_UUID if event.validate_only else topic_id
        replication_factor = len(partitions[0].replicas)
        results.append(CreatedTopic(topic.name, shown_id, len(partitions), replication_factor, configs))
    return Outcome(records, tuple(results), tuple(warnings))


def check_name(name: str) -> None:
    if name in RESERVED_NAMES:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic '{name}' is reserved and cannot be created")
    if name == "":
        problem = "the empty string is not allowed"
    elif name in (".", ".."):
        problem = f"'{name}' is not allowed"
    elif len(name) > MAX_NAME_LENGTH:
        problem = f"the length of '{shown(name)}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    elif not _LEGAL_NAME.fullmatch(name):
        problem = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def _check_new(image: Image, name: str, taken: Mapping[str, str]) -> None:
    if name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    rival = taken.get(_collision_key(name))
    if rival is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {rival}; they differ only in '.' and '_'",
        )


def _collision_key(name: str) -> str:
    return name.replace(".", "_")


def _may_collide(names: Iterable[str]) -> bool:
    return any("." in name or "_" in name for name in names)


def _check_room(count: int, already: int) -> None:
    """One request may not build what would hold up the controller for everybody else."""
    if already + count > MAX_PARTITIONS_PER_REQUEST:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{already + count} new partitions in one request are over {MAX_PARTITIONS_PER_REQUEST}; split it",
        )


def _new_partitions(
    image: Image, topic_id: bytes, topic: NewTopic, context: Context, already: int
) -> list[r.PartitionRecord]:
    if topic.assignments:
        if topic.num_partitions != -1 or topic.replication_factor != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"topic '{topic.name}' comes with assignments; leave partitions and replication factor at -1",
            )
        _check_room(len(topic.assignments), already)
        chosen = sorted(topic.assignments)
        if [number for number, _ in chosen] != list(range(len(chosen))):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"topic '{topic.name}' has assignments for partitions {[number for number, _ in chosen][:10]}; "
                f"they must be 0, 1, 2 and so on, each once",
            )
        assignments: Sequence[Sequence[int]] = [replicas for _, replicas in chosen]
        _check_assignments(image, topic.name, assignments, len(assignments[0]))
    else:
        count = context.config["num.partitions"] if topic.num_partitions == -1 else topic.num_partitions
        if count < 1:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                "Number of partitions was set to an invalid non-positive value. "
                f"Topic '{topic.name}' cannot have {count} partitions; ask for 1 or more, or -1 for the default",
            )
        _check_room(count, already)
        factor = topic.replication_factor
        if factor == -1:
            factor = context.config["default.replication.factor"]
        assignments = _place(image, topic.name, range(count), factor, context)
    return _partition_records(image, topic_id, 0, assignments)


def _place(
    image: Image, name: str, partitions: range, factor: int, context: Context, first_leader: int | None = None
) -> list[list[int]]:
    if not 1 <= factor <= MAX_REPLICATION_FACTOR:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value. "
            f"Topic '{name}' cannot have replication factor {factor}",
        )
    racks = {broker.id: broker.rack for broker in image.brokers.values() if broker.may_lead}
    if factor > len(racks):
        registered = len(image.brokers)
        few = f"{len(racks)} of the {registered} registered brokers can take replicas now"
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot be "
            f"reached because only {f'{registered} broker(s) are registered' if factor > registered else few}",
        )
    return place(racks, partitions, factor, context.rng, first_leader)


def _check_assignments(image: Image, name: str, assignments: Sequence[Sequence[int]], factor: int) -> None:
    for replicas in assignments:
        where = f"topic '{name}', replicas {list(replicas)[:10]}"
        if not replicas or len(set(replicas)) < len(replicas):
            reason = "names a broker twice" if replicas else "is empty"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{where}: the assignment {reason}")
        if len(replicas) != factor:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{where}: {len(replicas)} brokers where the other partitions have {factor}",
            )
        unknown = [broker for broker in replicas if broker not in image.brokers]
        if unknown:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{where}: broker {unknown[0]} is not registered; there are {sorted(image.brokers)}",
            )
        if not any(image.brokers[broker].may_lead for broker in replicas):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{where}: every one of these brokers is fenced or shutting down"
            )


def _partition_records(
    image: Image, topic_id: bytes, first: int, assignments: Sequence[Sequence[int]]
) -> list[r.PartitionRecord]:
    """New partitions are in sync wherever a broker is alive: there is nothing to catch up with."""
    alive = {broker.id for broker in image.brokers.values() if broker.may_lead}
    records = []
    for number, replicas in enumerate(assignments, first):
        isr = [broker for broker in replicas if broker in alive]
        records.append(
            r.PartitionRecord(
                partition_id=number,
                topic_id=topic_id,
                replicas=list(replicas),
                isr=isr,
                leader=elect(replicas, isr, alive),
                leader_epoch=0,
                partition_epoch=0,
                directories=[image.brokers[broker].new_replica_directory for broker in replicas],
            )
        )
    return records


def delete_topics(image: Image, event: DeleteTopics, context: Context) -> Outcome:
    times = Counter(event.topics)
    records: list[r.Record] = []
    results: list[DeletedTopic] = []
    seen: set[bytes] = set()
    for reference in times:
        try:
            topic = _find(image, reference)
            if times[reference] > 1 or topic.id in seen:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic '{topic.name}' is in the request more than once")
            if not context.config["delete.topic.enable"]:
                raise KafkaError(
                    ErrorCode.TOPIC_DELETION_DISABLED,
                    f"topic '{topic.name}' stays: delete.topic.enable is false on this cluster",
                )
        except KafkaError as error:
            results.append(DeletedTopic(reference.name, reference.topic_id, Failure(error.code, error.message)))
            continue
        seen.add(topic.id)
        records.append(r.RemoveTopicRecord(topic_id=topic.id))
        results.append(DeletedTopic(topic.name, topic.id))
    return Outcome(records, tuple(results))


def _find(image: Image, reference: TopicReference) -> Topic:
    by_id = reference.topic_id != ZERO_UUID
    if by_id == (reference.name is not None):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "name a topic by its name or by its id, not by both or neither")
    if by_id:
        topic = image.topic_by_id(reference.topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        return topic
    topic = image.topics.get(reference.name or "")
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{reference.name}' does not exist")
    return topic


def create_partitions(image: Image, event: CreatePartitions, context: Context) -> Outcome:
    times = Counter(wanted.topic for wanted in event.topics)
    records: list[r.PartitionRecord] = []
    results: list[CreatedPartitions] = []
    for wanted in {wanted.topic: wanted for wanted in event.topics}.values():
        try:
            if times[wanted.topic] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic '{wanted.topic}' is in the request more than once")
            added = _added_partitions(image, wanted, context, already=len(records))
        except KafkaError as error:
            results.append(CreatedPartitions(wanted.topic, Failure(error.code, error.message)))
            continue
        records += added
        results.append(CreatedPartitions(wanted.topic))
    return Outcome([] if event.validate_only else records, tuple(results))


def _added_partitions(image: Image, wanted: NewPartitions, context: Context, already: int) -> list[r.PartitionRecord]:
    topic = _find(image, TopicReference(wanted.topic))
    has = len(topic.partitions)
    if wanted.count == has:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {has} partition(s).")
    if wanted.count < has:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {has} partition(s); {wanted.count} would not be an increase.",
        )
    added = wanted.count - has
    _check_room(added, already)
    first = topic.partitions[0]
    preferred = [replica for replica in first.replicas if replica not in first.removing_replicas]
    if wanted.assignments is None:
        new = range(has, wanted.count)
        assignments: Sequence[Sequence[int]] = _place(
            image, topic.name, new, len(preferred), context, first_leader=preferred[0]
        )
    else:
        assignments = wanted.assignments
        if len(assignments) != added:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"topic '{topic.name}' gets {added} partitions more, but {len(assignments)} assignments came with them",
            )
        _check_assignments(image, topic.name, assignments, len(preferred))
    return _partition_records(image, topic.id, has, assignments)
