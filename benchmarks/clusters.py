"""Three brokers of either kind on one machine, at their default settings, for the benchmarks of a cluster."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from benchmarks.report import BARNABAS
from tests.peers import HOST, KAFKA_JVM, Server, barnabas_command, free_port, kafka_command, kafka_tool

NODES = (1, 2, 3)
START_TIMEOUT = 60.0
CLUSTER_ID = "bench0marks0of0cluster"


class Cluster(NamedTuple):
    """Brokers that know of each other, and how long that took."""

    bootstrap: str
    pids: dict[int, int]
    """The process of each broker."""
    servers: Sequence[Server]
    """What was started: a process each, or one that started the others."""
    start_seconds: float
    format_seconds: float


@contextmanager
def running_cluster(name: str) -> Iterator[Cluster]:
    directory = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
    servers: list[Server] = []
    try:
        os.sync()  # what the last cluster left to be written is not this one's burden
        yield _barnabas(directory, servers) if name == BARNABAS else _kafka(directory, servers)
    finally:
        for server in servers:
            server.kill()
        shutil.rmtree(directory, ignore_errors=True)  # brokers whose parent was killed may still be on their way out


def _barnabas(directory: Path, servers: list[Server]) -> Cluster:
    stdout = directory / "stdout"
    command = barnabas_command("up", "--brokers", "3", "--port", "0", "--data-dir", str(directory / "data"))
    server = Server([*command, "-o", "json"], stdout, directory / "log")
    servers.append(server)
    server.wait_until(lambda: b"\n" in stdout.read_bytes(), START_TIMEOUT)
    ready = json.loads(stdout.read_text().splitlines()[0])
    bootstrap = ",".join(ready["addresses"])
    _wait_for_all(bootstrap)
    took = time.monotonic() - server.spawned_at
    return Cluster(bootstrap, dict(zip(NODES, ready["broker_pids"])), servers, took, 0.0)


def _kafka(directory: Path, servers: list[Server]) -> Cluster:
    """Each node is broker and controller, so that no single one is needed."""
    controllers = {node: f"{HOST}:{free_port()}" for node in NODES}
    brokers = {node: f"{HOST}:{free_port()}" for node in NODES}
    common = {
        "process.roles": "broker,controller",
        "controller.quorum.voters": ",".join(f"{node}@{address}" for node, address in controllers.items()),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    started = time.monotonic()
    for node in NODES:
        own = {
            "node.id": str(node),
            "listeners": f"PLAINTEXT://{brokers[node]},CONTROLLER://{controllers[node]}",
            "log.dirs": str(directory / f"data-{node}"),
        }
        properties = directory / f"{node}.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in (common | own).items()))
        kafka_tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties))
    formatted = time.monotonic() - started
    for node in NODES:
        log = directory / f"{node}.log"
        servers.append(
            Server(kafka_command("kafka.Kafka", str(directory / f"{node}.properties"), jvm=KAFKA_JVM), log, log)
        )
    bootstrap = ",".join(brokers.values())
    _wait_for_all(bootstrap)
    took = time.monotonic() - servers[0].spawned_at
    return Cluster(bootstrap, {node: server.pid for node, server in zip(NODES, servers)}, servers, took, formatted)


def _wait_for_all(bootstrap: str) -> None:
    """Until a client sees all brokers; it asks often, so as not to measure its own pause."""
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 100})
        try:
            if len(admin.list_topics(timeout=1).brokers) == len(NODES):
                return
        except KafkaException:
            continue
        time.sleep(0.02)
    raise TimeoutError(f"not all brokers of {bootstrap} were there after {START_TIMEOUT:.0f} s")
