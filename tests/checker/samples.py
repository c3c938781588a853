"""Short words for hand-written histories."""

from __future__ import annotations

from tests.checker.anomaly import Anomaly, Name
from tests.checker.checker import anomalies
from tests.checker.expectations import Expectations
from tests.checker.history import (
    UNTOLD,
    Acknowledged,
    Assigned,
    CommitFailed,
    CommitsAsked,
    CommitsTold,
    Committed,
    Committing,
    Event,
    FinalLog,
    Outcome,
    Polled,
    Record,
    Sent,
    TopicPartition,
    TransactionEnded,
    TransactionEnding,
)

PLAIN, OTHER = TopicPartition("plain", 0), TopicPartition("other", 0)
SYNCED, EXPIRING = TopicPartition("synced", 0), TopicPartition("expiring", 0)
A, B, C, D, E = b"p:0", b"p:1", b"p:2", b"p:3", b"p:4"
EXPECTED = Expectations(
    synced_topics={"synced"}, expiring_topics={"expiring"}, safe_topics={"safe"}, idempotent_producers={"p"}
)


def found(*events: Event, expected: Expectations = EXPECTED) -> list[Anomaly]:
    return anomalies(((float(time), event) for time, event in enumerate(events)), expected)


def names(*events: Event, expected: Expectations = EXPECTED) -> list[Name]:
    return [anomaly.name for anomaly in found(*events, expected=expected)]


def sent(partition: TopicPartition, *values: bytes, by: str = "p") -> Sent:
    return Sent(by, partition, values)


def sent_in(transaction: str, partition: TopicPartition, *values: bytes, by: str = "p") -> Sent:
    return Sent(by, partition, values, transaction)


def made_of(source: bytes, transaction: str, partition: TopicPartition, value: bytes) -> Sent:
    return Sent("p", partition, (value,), transaction, (source,))


def acknowledged(partition: TopicPartition, base_offset: int, *values: bytes, life: int = 0) -> Acknowledged:
    return Acknowledged("p", life, partition, base_offset, values)


def committing(transaction: str) -> TransactionEnding:
    return TransactionEnding("p", transaction, Outcome.COMMITTED)


def ended(transaction: str, outcome: Outcome = Outcome.COMMITTED) -> TransactionEnded:
    return TransactionEnded("p", transaction, outcome)


def fetched(partition: TopicPartition, *records: Record, start: int | None = None, life: int = 0) -> Polled:
    """From where the consumer itself has asked to read."""
    return Polled("c", life, partition, records[0][0] if start is None else start, records)


def polled(partition: TopicPartition, *records: Record, by: str = "c", transaction: str = "") -> Polled:
    """From where its client has come to, and only what is committed."""
    return Polled(by, 0, partition, UNTOLD, records, read_committed=True, transaction=transaction)


def assigned(partition: TopicPartition, offset: int = UNTOLD, by: str = "c", group: str = "") -> Assigned:
    return Assigned(by, ((partition, offset),), group)


def final(partition: TopicPartition, *values: bytes, start: int = 0) -> FinalLog:
    return FinalLog(partition, start, tuple(enumerate(values, start)))


def final_records(partition: TopicPartition, *records: Record) -> FinalLog:
    return FinalLog(partition, 0, records, read_committed=True)


# groups


def commit_begun(offset: int, by: str = "c", transaction: str = "") -> Committing:
    return Committing(by, "g", ((PLAIN, offset),), transaction)


def commit_done(offset: int, by: str = "c") -> Committed:
    return Committed(by, "g", ((PLAIN, offset),))


def commit_failed(offset: int, *, definite: bool, by: str = "c") -> CommitFailed:
    return CommitFailed(by, "g", ((PLAIN, offset),), definite)


def committed(offset: int, by: str = "c") -> tuple[Committing, Committed]:
    return commit_begun(offset, by), commit_done(offset, by)


def told(offset: int) -> tuple[CommitsAsked, CommitsTold]:
    return CommitsAsked("o", "g", (PLAIN,)), CommitsTold("o", "g", ((PLAIN, offset),))
