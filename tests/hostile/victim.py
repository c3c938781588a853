"""A broker under attack."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from barnabas.wire.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.hostile.wire import Wire
from tests.hostile.witness import Witness
from tests.peers import BarnabasServer, answers_metadata, eventually, kcat

MIB = 1 << 20


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

    def metric(self, name: str) -> float:
        return sum(sample.value for sample in self._samples() if sample.name == name)

    def metric_by_label(self, name: str, label: str) -> dict[str, float]:
        sums: dict[str, float] = defaultdict(float)
        for sample in self._samples():
            if sample.name == name:
                sums[sample.labels[label]] += sample.value
        return sums

    def _samples(self) -> Iterator[Sample]:
        with urllib.request.urlopen(self._metrics_url, timeout=20) as response:
            text = response.read().decode()
        for family in text_string_to_metric_families(text):
            yield from family.samples

    def connect(self, timeout: float = 10.0, receive_buffer_bytes: int = 0) -> Wire:
        return Wire(self.address, timeout, receive_buffer_bytes)

    def new_topic(self, config: Mapping[str, str] | None = None) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        configs = [CreatableTopicConfig(*entry) for entry in (config or {}).items()]
        with self.connect() as wire:
            (created,) = wire.call(CreateTopicsRequest([CreatableTopic(name, 1, 1, [], configs)], 10_000)).topics
        assert not created.error_code, created.error_message
        return name

    @contextmanager
    def witness(self) -> Iterator[Witness]:
        topic = self.new_topic()
        with Witness(self.address, topic, self.server.log.with_name(f"{topic}.witness")) as witness:
            yield witness

    def is_well(self) -> None:
        """Alive, answering a stranger's program, and without a failure of its own in metrics or log."""
        assert self.server.process.poll() is None
        # Told to leave the cluster, as whoever may connect may tell it, it is back with its next heartbeats.
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
