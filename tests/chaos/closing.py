"""The end of a round: everybody has read everything, and what is in the logs is written down for the checker."""

from __future__ import annotations

import time
from dataclasses import replace

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position

from tests.chaos import damage
from tests.chaos.brokers import Brokers
from tests.chaos.journal import Journal
from tests.chaos.load import PARTITIONS
from tests.chaos.resent import sent_again
from tests.chaos.workload import COPYING, GROUPS, LIBRDKAFKAS, members, read_topics
from tests.chaos.world import REPLICAS
from tests.checker.history import (
    NO_OFFSET,
    Assigned,
    CommitsAsked,
    CommitsTold,
    Drained,
    FinalLog,
    FinalReplica,
    Polled,
    TopicPartition,
)
from tests.cluster.whole_logs import READ_WITHIN_S, read_to_end

_COMPLAINT_CHARACTERS = 1000


def partitions_of(*topics: str) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for topic in topics for index in range(PARTITIONS)]


def read_logs(journal: Journal, bootstrap: str, topics: tuple[str, ...]) -> dict[TopicPartition, int]:
    """Read topics that nobody writes to any more; the last offset of each partition that everybody may see."""
    partitions = partitions_of(*topics)
    ends: dict[TopicPartition, int] = {}
    last: dict[TopicPartition, int] = {}
    for level in ("read_uncommitted", "read_committed"):
        logs, reached = read_to_end(bootstrap, partitions, level, ends)
        ends = reached
        for partition, records in logs.items():
            journal.record(FinalLog(partition, 0, tuple(records), read_committed=level == "read_committed"))
            last[partition] = records[-1][0] if records else -1
    return last


def drain(journal: Journal, last: dict[TopicPartition, int]) -> None:
    """Give all readers the time to come to the end; who does not is the checker's business."""
    deadline = time.monotonic() + READ_WITHIN_S
    topics = read_topics()

    def is_late() -> bool:
        return any(
            journal.read_up_to[name].get(partition, -1) < offset
            for name, read in topics.items()
            for partition, offset in last.items()
            if partition.topic in read
        )

    while is_late() and time.monotonic() < deadline:
        time.sleep(0.1)
    named = {event.consumer for _, event in journal.history.events if isinstance(event, Assigned | Polled)}
    for name, some in members().items():
        lives = tuple(sorted(each for each in named if each.partition(".")[0] in some))
        journal.record(Drained(lives, tuple(partitions_of(*topics[name]))))


def ask_commits(journal: Journal, bootstrap: str) -> None:
    """What each group has committed, as its coordinator tells."""
    for group in (*GROUPS, COPYING):
        partitions = partitions_of(*read_topics()[group])
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
        try:
            journal.record(CommitsAsked("auditor", group, tuple(partitions)))
            told = consumer.committed([Position(*partition) for partition in partitions], timeout=READ_WITHIN_S)
            offsets = tuple((TopicPartition(each.topic, each.partition), max(each.offset, NO_OFFSET)) for each in told)
            journal.record(CommitsTold("auditor", group, offsets))
        finally:
            consumer.close()


def compare_replicas(journal: Journal, brokers: Brokers, topics: tuple[str, ...]) -> list[str]:
    """Write down what stopped brokers have on their disks; replicas that are not there, and wrong checksums."""
    problems = []
    for partition in partitions_of(*topics):
        places = {number: brokers.data_dir(number) / str(partition) for number in brokers.numbers}
        held = {number: place for number, place in places.items() if place.is_dir()}
        if len(held) < REPLICAS:
            problems.append(f"missing replica: {partition} is on brokers {', '.join(map(str, held))} only")
        for number, place in held.items():
            batches, problem = damage.batches(sorted(place.glob("*.log")))
            journal.record(FinalReplica(partition, number, tuple(batches)))
            if problem:
                problems.append(f"damaged replica: {partition} on broker {number}: {problem}")
    return problems


def note_sent_again(journal: Journal, brokers: Brokers) -> int:
    """Write down which records of librdkafka's are there twice because it has sent them twice; how many.

    Nobody else is excused: our own producer must not do that.
    """
    found = 0
    finals = [event for _, event in journal.history.events if isinstance(event, FinalLog) and not event.read_committed]
    for event in finals:
        places = (brokers.data_dir(number) / str(event.partition) for number in brokers.numbers)
        segments = sorted(next(place for place in places if place.is_dir()).glob("*.log"))
        theirs = tuple(record for record in event.records if record[1].startswith(f"{LIBRDKAFKAS}.".encode()))
        resent = sent_again(replace(event, records=theirs), segments)
        if resent is not None:
            journal.record(resent)
            found += len(resent.offsets)
    return found


def read_complaints(brokers: Brokers) -> list[str]:
    """What failed in a broker for a reason of its own stands in its log with a stack."""
    logs = sorted(brokers.directory.glob("broker-*.log"))
    return [
        f"{log.name}: {line[:_COMPLAINT_CHARACTERS]}"
        for log in logs
        for line in log.read_text().splitlines()
        if " trace=" in line or "Traceback" in line
    ]
