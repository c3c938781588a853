"""Judges a history: what was acknowledged, read or recovered must fit one log per partition. A pure function.

`known` is what clients have learnt about the log of a partition: an offset has one value, for ever. A power cut may
take back what was not synced, so for a topic that is not synced before it is acknowledged, what was learnt from an
earlier boot counts no more; a crash excuses nothing. Records go from the beginning of a log only when a client or the
topic's retention has them deleted, and then do not come back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise

from tests.simulation.history import (
    Acknowledged,
    Event,
    FinalLog,
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
)


class Checker:
    """Takes the events in their order.

    `synced_topics` acknowledge only what would survive a power cut; `expiring_topics` have a short retention.
    """

    def __init__(
        self,
        synced_topics: Collection[str],
        expiring_topics: Collection[str],
        idempotent_producers: Collection[str],
    ) -> None:
        self.anomalies: list[str] = []
        self._synced_topics = synced_topics
        self._expiring_topics = expiring_topics
        self._idempotent_producers = idempotent_producers
        self._boot = 0
        self._sent: dict[bytes, tuple[str, TopicPartition, int]] = {}
        self._known: dict[TopicPartition, dict[int, bytes]] = {}
        self._producer_ids: dict[tuple[int, int], str] = {}
        self._to_be_trimmed: dict[TopicPartition, int] = {}
        self._trimmed: dict[TopicPartition, int] = {}

    def check(self, event: Event) -> None:
        match event:
            case Sent():
                for value in event.values:
                    self._sent[value] = (event.producer, event.partition, len(self._sent))
            case Acknowledged():
                records = [(event.base_offset + index, value) for index, value in enumerate(event.values)]
                self._learn(f"acknowledged to {event.producer}", event.partition, event.boot, records)
            case ProducerIdGiven():
                given = (event.producer_id, event.producer_epoch)
                if given in self._producer_ids:
                    self._report(f"producer id {given} given to {self._producer_ids[given]} and to {event.producer}")
                self._producer_ids[given] = event.producer
            case SequenceForgotten():
                if event.since_boot == event.boot or event.partition.topic in self._synced_topics:
                    self._report(f"{event.partition}: the broker forgot what {event.producer} had sent")
            case Polled():
                self._check_dense(f"polled by {event.consumer}", event.partition, event.fetch_offset, event.records)
                self._learn(f"polled by {event.consumer}", event.partition, event.boot, event.records)
            case Trimming():
                self._to_be_trimmed[event.partition] = max(event.offset, self._to_be_trimmed.get(event.partition, 0))
            case Trimmed():
                self._trimmed[event.partition] = max(event.low_watermark, self._trimmed.get(event.partition, 0))
            case Recovered():
                if not event.is_prefix:
                    self._report(f"{event.partition}: recovery left something else than the log's beginning: {event}")
            case PowerCut():
                self._boot = event.boot
                for partition in self._known:
                    if partition.topic not in self._synced_topics:
                        self._known[partition] = {}
            case FinalLog():
                self._check_start(event.partition, event.log_start_offset)
                self._check_final(event.partition, event.log_start_offset, event.records)

    def _learn(self, how: str, partition: TopicPartition, boot: int, records: Iterable[Record]) -> None:
        if boot < self._boot and partition.topic not in self._synced_topics:
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
        self._learn("at the end", partition, self._boot, records)
        last_offset = records[-1][0] if records else log_start_offset - 1
        lost = sorted(offset for offset in self._known.get(partition, ()) if offset > last_offset)
        for offset in lost:
            self._report(f"{partition}: lost: {_name(self._known[partition][offset])} at {offset}")
        of_producer: dict[str, list[int]] = {}
        for _, value in records:
            if value in self._sent:
                producer, _, number = self._sent[value]
                of_producer.setdefault(producer, []).append(number)
        for producer, numbers in of_producer.items():
            if producer in self._idempotent_producers and any(a >= b for a, b in pairwise(numbers)):
                self._report(f"{partition}: what {producer} sent is there twice or in another order")

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
) -> list[str]:
    checker = Checker(synced_topics, expiring_topics, idempotent_producers)
    for _, event in events:
        checker.check(event)
    return checker.anomalies


def _name(value: bytes) -> str:
    return value[:20].decode(errors="replace").partition(" ")[0]
