"""A well-behaved client beside the attackers, which notices whether it is still served.

It is a process of its own, for an attacker that is busy would hold it up. It produces a record and waits for it to come
back, again and again, and writes down how long each took.

    python -m tests.hostile.witness ADDRESS TOPIC FILE    until its standard input ends
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Self

import confluent_kafka

from tests.peers import eventually

PAUSE_SECONDS = 0.01
PATIENCE_SECONDS = 20
_PROBLEM = "problem: "


class Witness:
    """Started with `with`; afterwards, and meanwhile, it tells what it saw."""

    def __init__(self, address: str, topic: str, notes: Path) -> None:
        self._command = [sys.executable, "-m", "tests.hostile.witness", address, topic, str(notes)]
        self._notes = notes

    def __enter__(self) -> Self:
        self._notes.write_text("")
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE)
        eventually(lambda: self._notes.stat().st_size > 0 or self._process.poll() is not None, True, PATIENCE_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(3 * PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise

    def _lines(self) -> list[str]:
        *whole, _ = self._notes.read_text().split("\n")  # the last line may be half written
        return whole

    @property
    def records(self) -> list[tuple[float, float]]:
        """When each was sent, by the machine's monotonic clock, and how many seconds it took."""
        lines = (line.split() for line in self._lines() if not line.startswith(_PROBLEM))
        return [(float(sent), float(seconds)) for sent, seconds in lines]

    @property
    def problems(self) -> list[str]:
        code = self._process.poll()
        died = [f"the witness ended with {code}"] if code else []
        return died + [line.removeprefix(_PROBLEM) for line in self._lines() if line.startswith(_PROBLEM)]

    def was_served(self, within_seconds: float, rounds: int = 10) -> None:
        """Always, and each time in time."""
        assert self.problems == []
        seconds = [seconds for _, seconds in self.records]
        assert len(seconds) >= rounds
        told = f"{max(seconds):.2f} s for one record, median {percentile(seconds, 50) * 1000:.1f} ms"
        assert max(seconds) < within_seconds, told


def percentile(values: list[float], percent: float) -> float:
    """The value that so many percent do not exceed."""
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))]


def _watch(address: str, topic: str, notes: Path, stop: threading.Event) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address, "linger.ms": 0, "acks": "all", "message.timeout.ms": PATIENCE_SECONDS * 1000}
    )
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "witness", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    number = 0
    with notes.open("w", buffering=1) as out:
        while not stop.is_set():
            value = str(number).encode()
            started = time.monotonic()
            producer.produce(topic, value, partition=0)
            if producer.flush(PATIENCE_SECONDS):
                out.write(f"{_PROBLEM}record {number} was not acknowledged\n")
                break
            message = consumer.poll(PATIENCE_SECONDS)
            if message is None or message.error() or message.value() != value:
                told = message and (message.error() or message.value())
                out.write(f"{_PROBLEM}record {number} did not come back: {told}\n")
                break
            out.write(f"{started} {time.monotonic() - started}\n")
            number += 1
            stop.wait(PAUSE_SECONDS)
    consumer.close()


def main() -> None:
    stop = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    _watch(sys.argv[1], sys.argv[2], Path(sys.argv[3]), stop)


if __name__ == "__main__":
    main()
