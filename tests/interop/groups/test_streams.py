"""Kafka Streams counts words exactly once, though it is killed in the middle."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests import peers
from tests.peers import ROOT, Broker, NewTopic, Server

LINES = 4000
WORDS_IN_A_LINE = 3
PARTITIONS = 2
VOCABULARY = [f"word-{number}" for number in range(40)]


@pytest.fixture(scope="module")
def word_count() -> list[str]:
    return peers.java_command(ROOT / "tests" / "interop" / "clients" / "WordCount.java")


class Counts:
    """What a reader of committed records sees of the counts of each word, in order."""

    def __init__(self, address: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "judge",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        self.told: defaultdict[str, list[int]] = defaultdict(list)

    def read(self) -> int:
        """Read on, and give how many counts were told by now."""
        for message in self._consumer.consume(10_000, 0.05):
            assert message.error() is None, message.error()
            self.told[(message.key() or b"").decode()].append(int(message.value() or b""))
        return sum(map(len, self.told.values()))

    def wait_for(self, count: int, server: Server, timeout: float = 60) -> None:
        deadline = time.monotonic() + timeout
        while (told := self.read()) < count:
            assert server.process.poll() is None, f"Streams ended by itself:\n{server.tail()}"
            assert time.monotonic() < deadline, f"{told} of {count} counts after {timeout} s:\n{server.tail()}"

    def close(self) -> None:
        self._consumer.close()


def test_a_word_count_that_is_killed_in_the_middle_counts_every_word_once(
    broker: Broker, new_topic: NewTopic, word_count: list[str], tmp_path: Path
) -> None:
    source, target = new_topic(PARTITIONS), new_topic(PARTITIONS)
    chosen = random.Random(11)
    lines = [chosen.choices(VOCABULARY, k=WORDS_IN_A_LINE) for _ in range(LINES)]
    expected = Counter(word for line in lines for word in line)
    total = LINES * WORDS_IN_A_LINE
    log = tmp_path / "streams.log"
    command = [*word_count, broker.address, f"count-{source}", source, target, str(tmp_path / "state")]
    counts = Counts(broker.address, target)

    produce(broker.address, source, lines[: LINES // 2])
    streams = Server(command, log, log)
    try:
        counts.wait_for(total // 10, streams)
        streams.kill()
        produce(broker.address, source, lines[LINES // 2 :])  # so that it cannot be through before it is killed
        streams = Server(command, log, log)
        counts.wait_for(total, streams)
        time.sleep(0.5)
        counts.read()
    finally:
        streams.kill()
        counts.close()

    assert counts.told == {word: list(range(1, count + 1)) for word, count in expected.items()}


def produce(address: str, topic: str, lines: list[list[str]]) -> None:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5})
    for number, line in enumerate(lines):
        producer.produce(topic, " ".join(line), partition=number % PARTITIONS)
    assert producer.flush(20) == 0
