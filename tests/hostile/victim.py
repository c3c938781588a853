"""A broker under attack, and a well-behaved client beside the attackers that notices whether it is still served."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import psutil
from prometheus_client.parser import text_string_to_metric_families

from tests.hostile.wire import Wire
from tests.peers import BarnabasServer, answers_metadata, eventually, kcat

MIB = 1 << 20


class Witness:
    """Produces a record, waits for it to come back, again and again; keeps how long that took and what went wrong."""

    def __init__(self, address: str, topic: str) -> None:
        self.seconds: list[float] = []
        self.problems: list[str] = []
        self._address = address
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="witness")

    def _work(self) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self._address, "linger.ms": 0, "acks": "all", "message.timeout.ms": 20_000}
        )
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self._address, "group.id": "witness", "enable.auto.commit": False}
        )
        consumer.assign([confluent_kafka.TopicPartition(self._topic, 0, confluent_kafka.OFFSET_BEGINNING)])
        try:
            number = 0
            while not self._stop.is_set():
                started = time.monotonic()
                producer.produce(self._topic, str(number).encode(), partition=0)
                if producer.flush(20):
                    self.problems.append(f"record {number} was not acknowledged")
                    return
                message = consumer.poll(20)
                if message is None or message.error() or message.value() != str(number).encode():
                    told = message and (message.error() or message.value())
                    self.problems.append(f"record {number} did not come back: {told}")
                    return
                self.seconds.append(time.monotonic() - started)
                number += 1
                self._stop.wait(0.01)
        finally:
            consumer.close()

    def __enter__(self) -> Witness:
        self._thread.start()
        eventually(lambda: bool(self.seconds or self.problems), True, 20)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    @property
    def slowest(self) -> float:
        return max(self.seconds)

    def was_served(self, within_seconds: float, rounds: int = 10) -> None:
        assert not self._thread.is_alive()
        assert self.problems == []
        assert len(self.seconds) >= rounds
        assert self.slowest < within_seconds, f"{self.slowest:.2f} s for one record, median {self.median * 1000:.1f} ms"

    @property
    def median(self) -> float:
        return sorted(self.seconds)[len(self.seconds) // 2]


class Victim:
    """The broker's process as an observer sees it."""

    def __init__(self, server: BarnabasServer) -> None:
        self.server = server
        self.address = server.address
        self._process = psutil.Process(server.pid)
        found = re.search(r"metrics address=(\S+)", server.log.read_text())
        assert found is not None
        self._metrics_url = found[1]

    def resident_mib(self) -> float:
        return float(self._process.memory_info().rss) / MIB

    def peak_mib(self) -> float:
        """The most that was ever resident, where the system tells; otherwise what is now."""
        status = Path(f"/proc/{self.server.pid}/status")
        peak = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
        return int(peak[1]) / 1024 if peak else self.resident_mib()

    def metric(self, name: str, **labels: str) -> float:
        with urllib.request.urlopen(self._metrics_url, timeout=20) as response:
            text = response.read().decode()
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def connect(self, timeout: float = 10.0, receive_buffer_bytes: int = 0) -> Wire:
        return Wire(self.address, timeout, receive_buffer_bytes)

    def new_topic(self, config: Mapping[str, str] | None = None) -> str:
        from barnabas.wire.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

        name = f"t-{uuid.uuid4().hex[:12]}"
        configs = [CreatableTopicConfig(*entry) for entry in (config or {}).items()]
        with self.connect() as wire:
            (created,) = wire.call(CreateTopicsRequest([CreatableTopic(name, 1, 1, [], configs)], 10_000)).topics
        assert not created.error_code, created.error_message
        return name

    @contextmanager
    def witness(self) -> Iterator[Witness]:
        with Witness(self.address, self.new_topic()) as witness:
            yield witness

    def is_well(self) -> None:
        """Alive, answering a stranger's program, and without a failure of its own in metrics or log."""
        assert self.server.process.poll() is None
        # A request that bids it leave the cluster, which whoever may connect may send, is healed by its next heartbeats.
        eventually(lambda: answers_metadata(self.address), True, 20)
        listing = subprocess.run(
            [kcat(), "-L", "-J", "-b", self.address], capture_output=True, text=True, timeout=30, check=True
        )
        assert len(json.loads(listing.stdout)["brokers"]) == 1
        log = self.server.log.read_text()
        assert self.metric("barnabas_unhandled_errors_total") == 0, log
        assert "trace=" not in log
        assert "Traceback" not in log


@contextmanager
def attacked(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[Victim]:
    """A broker of its own, which must be well after everything that was done to it, and stop when asked."""
    with BarnabasServer(directory / "broker", settings, arguments=["--metrics-port", "0"]) as server:
        victim = Victim(server)
        yield victim
        victim.is_well()
