"""Which partitions change when a broker goes or comes, or when the rules for leaders do.

A broker that goes leaves its leaderships and the in-sync replicas; it may stay eligible, but not after an unclean
restart, nor when it is unregistered. One that comes leads what has been waiting for it. `partition_change` says how.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from barnabas.cluster.image import BROKER_RESOURCE, TOPIC_RESOURCE, Image, Partition, Topic
from barnabas.cluster.outcome import Outcome
from barnabas.cluster.partition_change import Election, Rules, Settled, change_record, settle
from barnabas.cluster.records import NO_LEADER, ConfigRecord, PartitionChangeRecord, Record
from barnabas.core.broker_config import BrokerConfig
from barnabas.core.topic_keys import TOPIC_KEYS

MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"

_SHOWN = 5  # partitions that a warning names


class PartitionChanges:
    """Changes of many partitions, decided one by one on the same image, each partition at most once."""

    __slots__ = ("_cached", "_default", "_image", "may_lead", "records", "unclean")

    def __init__(self, image: Image, config: BrokerConfig, *, without: int | None = None, plus: int | None = None):
        """`without` and `plus` are brokers whose standing changes together with the partitions."""
        self._image = image
        self._default = _rules(image.config(BROKER_RESOURCE, ""), Rules(config[MIN_ISR], config[UNCLEAN]))
        self._cached: tuple[Topic | None, Rules] = None, self._default
        self.may_lead = {
            broker.id
            for broker in image.brokers.values()
            if broker.id == plus or (broker.may_lead and broker.id != without)
        }
        self.records: list[PartitionChangeRecord] = []
        self.unclean: list[str] = []

    def rules(self, topic: Topic) -> Rules:
        if self._cached[0] is not topic:  # one topic's partitions come one after the other
            self._cached = topic, _rules(self._image.config(TOPIC_RESOURCE, topic.name), self._default)
        return self._cached[1]

    def add(
        self,
        topic: Topic,
        number: int,
        wanted: Partition,
        unclean_restart: int | None = None,
        election: Election = Election.IF_NEEDED,
    ) -> Partition:
        """The partition as it will be."""
        old = topic.partitions[number]
        settled = settle(old, wanted, self.rules(topic), self.may_lead, unclean_restart, election)
        return self.accept(topic, number, settled)

    def accept(self, topic: Topic, number: int, settled: Settled) -> Partition:
        old = topic.partitions[number]
        record = change_record(topic.id, number, old, settled.partition)
        if record is None:
            return old
        self.records.append(record)
        if settled.is_unclean:
            self.unclean.append(f"{topic.name}-{number}")
        return settled.partition

    def outcome(self, reply: Any, before: Iterable[Record] = (), after: Iterable[Record] = ()) -> Outcome:
        """These changes, between other records, and what is to be said about unclean elections."""
        count = len(self.unclean)
        warnings: tuple[str, ...] = ()
        if count:
            names = ", ".join(self.unclean[:_SHOWN]) + (", ..." if count > _SHOWN else "")
            warnings = (f"unclean election of leaders for {count} partitions: {names}; records may be lost",)
        return Outcome([*before, *self.records, *after], reply, warnings, count)


def _rules(texts: Mapping[str, str], default: Rules) -> Rules:
    values = {name: TOPIC_KEYS[name].parse(texts[name]) for name in (MIN_ISR, UNCLEAN) if name in texts}
    return Rules(values.get(MIN_ISR, default.min_isr), values.get(UNCLEAN, default.unclean))


def elect(replicas: Collection[int], isr: Collection[int], may_lead: Collection[int]) -> int:
    """The leader of a new partition."""
    return next((broker for broker in replicas if broker in isr and broker in may_lead), NO_LEADER)


def broker_goes(image: Image, config: BrokerConfig, broker_id: int, *, is_clean: bool) -> PartitionChanges:
    """Take the broker out of leaderships and in-sync replicas, and out of the eligible ones if it is not clean."""
    changes = PartitionChanges(image, config, without=broker_id)
    distrusted = None if is_clean else broker_id
    for topic, number, partition in _partitions(image):
        if broker_id in partition.isr or (not is_clean and broker_id in partition.eligible_leader_replicas):
            isr = tuple(replica for replica in partition.isr if replica != broker_id)
            changes.add(topic, number, replace(partition, isr=isr), distrusted)
    return changes


def broker_comes(image: Image, config: BrokerConfig, broker_id: int) -> PartitionChanges:
    """Give a leader to the partitions that may have waited for this broker."""
    changes = PartitionChanges(image, config, plus=broker_id)
    for topic, number, partition in _partitions(image):
        if partition.leader == NO_LEADER and broker_id in partition.replicas:
            changes.add(topic, number, partition)
    return changes


def rules_change(after: Image, config: BrokerConfig, altered: Collection[ConfigRecord]) -> PartitionChanges:
    """What follows from other configurations; `after` is the image with them.

    With another `min.insync.replicas` the watermark may move where it stood still, so nobody stays eligible, except
    where nobody is in sync either: there is no leader who could move it. Where unclean elections are allowed now,
    they come at once.
    """
    changes = PartitionChanges(after, config)
    scopes = {
        key: {(record.resource_type, record.resource_name) for record in altered if record.name == key}
        for key in (MIN_ISR, UNCLEAN)
    }
    for topic, number, partition in _partitions(after) if scopes[MIN_ISR] or scopes[UNCLEAN] else ():
        if partition.isr and partition.eligible_leader_replicas and _concerns(scopes[MIN_ISR], topic, MIN_ISR, after):
            forgotten = replace(partition, eligible_leader_replicas=())
            changes.accept(topic, number, Settled(forgotten, False))
        elif partition.leader == NO_LEADER and _concerns(scopes[UNCLEAN], topic, UNCLEAN, after):
            changes.add(topic, number, partition)
    return changes


def _concerns(scopes: Collection[tuple[int, str]], topic: Topic, key: str, after: Image) -> bool:
    if (TOPIC_RESOURCE, topic.name) in scopes:
        return True
    return (BROKER_RESOURCE, "") in scopes and key not in after.config(TOPIC_RESOURCE, topic.name)


def leads_any(image: Image, broker_id: int) -> bool:
    return any(partition.leader == broker_id for _, _, partition in _partitions(image))


def _partitions(image: Image) -> Iterator[tuple[Topic, int, Partition]]:
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions):
            yield topic, number, partition
