"""Consumer groups whose members are processes, in whatever language, and what their journal proves.

See `tests/interop/clients/journal.py` for the journal. A process that was killed cannot tell what it lost: the group
writes that for it, once the process is gone.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.interop.clients.journal import Journal
from tests.peers import Server

SESSION_MS = 4000
"""How long a broker waits for a member that is silent: long enough for a busy machine, short enough for a test."""


class Event(NamedTuple):
    time_ms: int
    member: str
    what: str
    numbers: list[int]


class Group:
    """A group that reads one topic: its processes, its journal, and the records that it was given."""

    def __init__(self, address: str, topic: str, partitions: int, directory: Path) -> None:
        self.name = f"g-{uuid.uuid4().hex[:12]}"
        self.address, self.topic, self.partitions = address, topic, partitions
        self._admin = AdminClient({"bootstrap.servers": address})
        self._directory = directory
        self._journal = directory / f"{self.name}.journal"
        self._journal.touch()
        self._members: dict[str, Server] = {}
        self._produced: dict[int, int] = dict.fromkeys(range(partitions), 0)

    def start(self, member: str, command: Sequence[str], settings: Mapping[str, str]) -> None:
        given = [self.address, self.name, self.topic, str(self._journal), member]
        log = self._directory / f"{self.name}-{member}.log"
        self._members[member] = Server([*command, *given, *(f"{k}={v}" for k, v in settings.items())], log, log)

    def kill(self, member: str) -> None:
        self._members.pop(member).kill()
        self._note("killed", member)

    def stop(self, member: str) -> None:
        """Ask a member to leave."""
        self._note("leaving", member)
        self._members.pop(member).stop()
        self._note("left", member)

    def end(self) -> None:
        for member in self._members.values():
            member.kill()

    def produce(self, count: int) -> None:
        """Records for every partition, the same number for each."""
        producer = Producer({"bootstrap.servers": self.address, "linger.ms": 5})
        for partition in self._produced:
            for _ in range(count):
                producer.produce(self.topic, b"value", partition=partition)
            self._produced[partition] += count
        assert producer.flush(20) == 0

    def events(self) -> list[Event]:
        # A reader may see half of a write that goes on in the next page of the file: the last line may be unfinished.
        lines = [line.split() for line in self._journal.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [Event(int(line[0]), line[1], line[2], [int(number) for number in line[3:]]) for line in lines]

    def owners(self) -> dict[int, str]:
        """Who owns each partition by now. That two ever owned one at once is an error.

        Not every client tells what it loses when it leaves. Of one that is leaving, others may have it, unless it tells
        later that it had it until then.
        """
        owners: dict[int, str] = {}
        leaving: dict[str, set[int]] = {}
        for event in self.events():
            if event.what == "gain":
                for partition in event.numbers:
                    owner = owners.get(partition, event.member)
                    if owner != event.member and owner in leaving:
                        leaving[owner].add(partition)
                    else:
                        assert owner == event.member, f"{event} while {owner} owns it\n{self.history()}"
                    owners[partition] = event.member
            elif event.what == "leaving":
                leaving[event.member] = set()
            elif event.what == "lose":
                early = leaving.get(event.member, set()).intersection(event.numbers)
                assert not early, f"{event}, which others had before\n{self.history()}"
                owners = {p: m for p, m in owners.items() if m != event.member or p not in event.numbers}
            elif event.what in ("killed", "left"):
                leaving.pop(event.member, None)
                owners = {p: m for p, m in owners.items() if m != event.member}
        return owners

    def settle(self, shares: Mapping[str, int], timeout: float = 60) -> None:
        """Wait until each of these members owns so many partitions: longer than a client's own request time-out."""
        self._wait(lambda: Counter(self.owners().values()) == shares, timeout, lambda: f"shares {shares}")

    def read_all(self, timeout: float = 30) -> None:
        """Wait until every record that was produced has been seen, and its offset committed."""
        self._wait(lambda: not self._unseen(), timeout, lambda: f"records {sorted(self._unseen())[:10]}")
        self._wait(lambda: self.committed() == self._produced, timeout, lambda: f"offsets beyond {self.committed()}")

    def committed(self) -> dict[int, int]:
        request = ConsumerGroupTopicPartitions(self.name, [TopicPartition(self.topic, p) for p in self._produced])
        answer = self._admin.list_consumer_group_offsets([request])[self.name].result(10)
        return {each.partition: each.offset for each in answer.topic_partitions}

    def state(self) -> ConsumerGroupState:
        return self._admin.describe_consumer_groups([self.name])[self.name].result(10).state

    def history(self) -> str:
        """Who gained and lost what, for the message of a failure."""
        return "\n".join(f"{e.time_ms} {e.member} {e.what} {e.numbers}" for e in self.events() if e.what != "saw")

    def _unseen(self) -> set[tuple[int, int]]:
        seen = {(event.numbers[0], event.numbers[1]) for event in self.events() if event.what == "saw"}
        return {(partition, offset) for partition, end in self._produced.items() for offset in range(end)} - seen

    def _note(self, what: str, member: str) -> None:
        Journal(str(self._journal), member).write(what, [])

    def _wait(self, done: Callable[[], bool], timeout: float, missing: Callable[[], str]) -> None:
        deadline = time.monotonic() + timeout
        while not done():
            for name, member in self._members.items():
                assert member.process.poll() is None, f"{name} ended by itself:\n{member.tail()}"
            if time.monotonic() > deadline:
                logs = "\n".join(f"{name}: {member.tail(10)}" for name, member in self._members.items())
                raise AssertionError(f"{missing()} did not come within {timeout} s\n{self.history()}\n{logs}")
            time.sleep(0.05)
