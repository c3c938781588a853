"""Judges a history: what was acknowledged, read or recovered must fit one log per partition. A pure function.

`known` is what clients have learnt about the log of a partition: an offset has one value, for ever. A power cut may
take back what a broker that is alone has not synced, so for a topic that is not synced before it is acknowledged, what
was learnt in an earlier life of the partition counts no more; a crash excuses nothing. In a cluster only an unclean
election begins another life. Records go from the beginning of a log only when a client or the topic's retention has
them deleted, and then do not come back. Replicas have the same batches, byte for byte.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise

from tests.checker import history
from tests.checker.history import (
    Acknowledged,
    Event,
    FinalLog,
    FinalReplica,
    Polled,
    PowerCut,
    ProducerIdGiven,
    Record,
    Recovered,
    Sent,
    SequenceForgotten,
    TopicPartition,
    Trimmed,
    Trimming,
    UncleanElection,
)


class Checker:
    """Takes the events in their order.

    `synced_topics` acknowledge only what would survive a power cut; `expiring_topics` have a short retention;
    `safe_topics` have so many in-sync replicas that no election of the run need be unclean. `hasty_producers` are told
    of success before all in-sync replicas have their records, which then may be lost.
    """

    def __init__(
        self,
        synced_topics: Collection[str],
        expiring_topics: Collection[str],
        idempotent_producers: Collection[str],
        safe_topics: Collection[str],
        hasty_producers: Collection[str],
    ) -> None:
        self.anomalies: list[str] = []
        self._synced_topics = synced_topics
        self._expiring_topics = expiring_topics
        self._idempotent_producers = idempotent_producers
        self._safe_topics = safe_topics
        self._hasty_producers = hasty_producers
        self._machine_life = 0
        self._lives: dict[TopicPartition, int] = {}
        # A leader that knows nothing of a producer takes its sequences as they come, perhaps a later batch first.
        self._disordered: set[tuple[str, TopicPartition]] = set()
        self._sent: dict[bytes, tuple[str, TopicPartition, int]] = {}
        self._known: dict[TopicPartition, dict[int, bytes]] = {}
        self._untold: dict[TopicPartition, set[bytes]] = {}  # acknowledged without an offset
        self._producer_ids: dict[tuple[int, int], str] = {}
        self._to_be_trimmed: dict[TopicPartition, int] = {}
        self._trimmed: dict[TopicPartition, int] = {}
        self._replicas: dict[TopicPartition, FinalReplica] = {}

    def check(self, event: Event) -> None:
        match event:
            case Sent():
                for value in event.values:
                    self._sent[value] = (event.producer, event.partition, len(self._sent))
            case Acknowledged(producer=producer) if producer in self._hasty_producers:
                pass
            case Acknowledged(base_offset=history.UNTOLD):
                self._untold.setdefault(event.partition, set()).update(event.values)
            case Acknowledged():
                records = [(event.base_offset + index, value) for index, value in enumerate(event.values)]
                self._learn(f"acknowledged to {event.producer}", event.partition, event.life, records)
            case ProducerIdGiven():
                given = (event.producer_id, event.producer_epoch)
                if given in self._producer_ids:
                    self._report(f"producer id {given} given to {self._producer_ids[given]} and to {event.producer}")
                self._producer_ids[given] = event.producer
            case SequenceForgotten():
                if event.partition in self._lives:
                    self._disordered.add((event.producer, event.partition))
                if event.since_life == event.life or event.partition.topic in self._synced_topics:
                    self._report(f"{event.partition}: the broker forgot what {event.producer} had sent")
            case Polled():
                self._check_dense(f"polled by {event.consumer}", event.partition, event.fetch_offset, event.records)
                # After an unclean election a follower gives out what it has until it hears of its leader's log.
                if not (event.from_any_replica and event.partition in self._lives):
                    self._learn(f"polled by {event.consumer}", event.partition, event.life, event.records)
            case Trimming():
                self._to_be_trimmed[event.partition] = max(event.offset, self._to_be_trimmed.get(event.partition, 0))
            case Trimmed():
                self._trimmed[event.partition] = max(event.low_watermark, self._trimmed.get(event.partition, 0))
            case Recovered():
                if not event.is_prefix:
                    self._report(f"{event.partition}: recovery left something else than the log's beginning: {event}")
            case PowerCut():
                self._machine_life = event.life
                for partition in self._known:
                    if partition.topic not in self._synced_topics:
                        self._known[partition] = {}
            case UncleanElection():
                self._lives[event.partition] = event.life
                self._known[event.partition] = {}
                if event.partition.topic in self._safe_topics:
                    self._report(f"{event.partition}: an unclean election, though enough replicas had everything")
            case FinalLog():
                self._check_start(event.partition, event.log_start_offset)
                self._check_final(event.partition, event.log_start_offset, event.records)
            case FinalReplica():
                self._check_replica(event)

    def _life_of(self, partition: TopicPartition) -> int:
        return self._lives.get(partition, self._machine_life)

    def _learn(self, how: str, partition: TopicPartition, life: int, records: Iterable[Record]) -> None:
        if life < self._life_of(partition) and partition.topic not in self._synced_topics:
            return
        known = self._known.setdefault(partition, {})
        for offset, value in records:
            if value not in self._sent or self._sent[value][1] != partition:
                self._report(f"{partition}: {how} at {offset}: {_name(value)}, which was never sent there")
            elif known.setdefault(offset, value) != value:
                self._report(f"{partition}: offset {offset} reused: was {_name(known[offset])}, {how}: {_name(value)}")

    def _check_start(self, partition: TopicPartition, log_start_offset: int) -> None:
        if log_start_offset < self._trimmed.get(partition, 0):
            self._report(f"{partition}: deleted up to {self._trimmed[partition]}, but begins at {log_start_offset}")
        if log_start_offset > self._to_be_trimmed.get(partition, 0) and partition.topic not in self._expiring_topics:
            self._report(f"{partition}: begins at {log_start_offset}, where nobody had it begin")

    def _check_final(self, partition: TopicPartition, log_start_offset: int, records: tuple[Record, ...]) -> None:
        self._check_dense("at the end", partition, log_start_offset, records)
        self._learn("at the end", partition, self._life_of(partition), records)
        last_offset = records[-1][0] if records else log_start_offset - 1
        lost = sorted(offset for offset in self._known.get(partition, ()) if offset > last_offset)
        for offset in lost:
            self._report(f"{partition}: lost: {_name(self._known[partition][offset])} at {offset}")
        for value in sorted(self._untold.get(partition, set()).difference(value for _, value in records)):
            self._report(f"{partition}: lost: {_name(value)}, acknowledged without an offset")
        of_producer: dict[str, list[int]] = {}
        for _, value in records:
            if value in self._sent:
                producer, _, number = self._sent[value]
                of_producer.setdefault(producer, []).append(number)
        for producer, numbers in of_producer.items():
            if (producer, partition) in self._disordered:
                continue
            if producer in self._idempotent_producers and any(a >= b for a, b in pairwise(numbers)):
                self._report(f"{partition}: what {producer} sent is there twice or in another order")

    def _check_replica(self, replica: FinalReplica) -> None:
        """Every other replica is compared with the first, from where all of them begin, whoever knows of deletions."""
        first = self._replicas.setdefault(replica.partition, replica)
        start = self._to_be_trimmed.get(replica.partition, 0)
        expected, found = ([b for b in each.batches if b[0] >= start] for each in (first, replica))
        if found != expected:
            offset = next((a[0] for a, b in zip(expected, found) if a != b), None)
            where = f"at {offset}" if offset is not None else f"{len(found)} batches where {len(expected)} are"
            self._report(f"{replica.partition}: brokers {first.broker_id} and {replica.broker_id} diverge: {where}")

    def _check_dense(self, how: str, partition: TopicPartition, start: int, records: tuple[Record, ...]) -> None:
        for expected, (offset, _) in enumerate(records, start):
            if offset != expected:
                self._report(f"{partition}: {how}: offset {offset} where {expected} was due")
                return

    def _report(self, anomaly: str) -> None:
        self.anomalies.append(anomaly)


def anomalies(
    events: Iterable[tuple[float, Event]],
    synced_topics: Collection[str] = (),
    expiring_topics: Collection[str] = (),
    idempotent_producers: Collection[str] = (),
    safe_topics: Collection[str] = (),
    hasty_producers: Collection[str] = (),
) -> list[str]:
    checker = Checker(synced_topics, expiring_topics, idempotent_producers, safe_topics, hasty_producers)
    for _, event in events:
        checker.check(event)
    return checker.anomalies


def _name(value: bytes) -> str:
    return value[:20].decode(errors="replace").partition(" ")[0]
