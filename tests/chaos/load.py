"""What the clients of a run write: how much, where to, and in which transactions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random

from tests.checker.history import TopicPartition

PLAIN, LEDGER, COPY = "plain", "ledger", "copy"
"""Written by idempotent producers; by transactional ones; by those that copy the first in transactions."""
PARTITIONS = 4
_LARGEST_BURST = 200
_ABORTED = 0.15
_PARTITIONS_OF_A_TRANSACTION = 3

Sends = list[tuple[TopicPartition, tuple[bytes, ...]]]


class Load:
    """`rate` is how many records a second each idempotent producer tries to write."""

    topics = (PLAIN, LEDGER)
    padding = b"." * 150
    pause_s = 0.02
    """Between two bursts."""
    rest_s = 0.1
    """Between two transactions or polls, so that they are about more than one record."""
    commit_every_s = 0.5
    poll_interval_ms = 45_000
    """After this time a group goes on without a member that does not give up what it should."""

    def __init__(self, seed: object, rate: float) -> None:
        self._seed = seed
        self._rate = rate
        self.partitions = [TopicPartition(topic, index) for topic in self.topics for index in range(PARTITIONS)]
        self.ledger = [TopicPartition(LEDGER, index) for index in range(PARTITIONS)]

    def bursts(self, name: str) -> Iterator[tuple[TopicPartition, tuple[bytes, ...]]]:
        """As many values as are due by now, which may be none, for one partition after the other."""
        random = self._random(name)
        number, began = 0, time.monotonic()
        while True:
            due = int((time.monotonic() - began) * self._rate) - number
            if due > _LARGEST_BURST:  # it was held up: go on from here
                began += (due - _LARGEST_BURST) / self._rate
                due = _LARGEST_BURST
            values = tuple(b"%s:%d" % (name.encode(), number + index) for index in range(due))
            number += due
            yield TopicPartition(PLAIN, random.randrange(PARTITIONS)), values

    def transactions(self, name: str) -> Iterator[tuple[Sends, bool]]:
        """What each transaction writes, and whether it is to be committed."""
        random = self._random(name)
        number = 0
        most = max(1, int(self._rate / 10))
        while True:
            sends: Sends = []
            for index in random.sample(range(PARTITIONS), random.randint(1, _PARTITIONS_OF_A_TRANSACTION)):
                count = random.randint(1, most)
                values = tuple(b"%s:%d" % (name.encode(), number + offset) for offset in range(count))
                number += count
                sends.append((TopicPartition(LEDGER, index), values))
            yield sends, random.random() >= _ABORTED

    def _random(self, name: str) -> Random:
        return Random(f"{self._seed} {name}")
