"""Three brokers that share an embedded metadata store, each a process that a test can kill and start again."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from barnabas.wire.messages import k03_metadata, k60_describe_cluster
from tests.broker.wire_client import Client
from tests.peers import BarnabasServer, free_port

NUMBERS = (1, 2, 3)
CLUSTER_VERSION = 2
METADATA_VERSION = 12


class Cluster:
    """Brokers under their node ids; one that was killed is absent until it is started again, at the same address."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self._directory = directory
        self._settings = {"offsets.topic.replication.factor": "1", **(settings or {})}
        self._ports: dict[int, int] = {}
        self._stack = ExitStack()
        self.brokers: dict[int, BarnabasServer] = {}

    def start(self, number: int) -> BarnabasServer:
        port = self._ports.setdefault(number, free_port())
        own = {"node.id": str(number), "barnabas.metadata.file": str(self._directory / "metadata.sqlite")}
        broker = BarnabasServer(self._directory / f"broker-{number}", {**self._settings, **own}, port=port)
        self.brokers[number] = self._stack.enter_context(broker)
        return broker

    def kill(self, number: int) -> None:
        self.brokers.pop(number).kill()

    def address(self, number: int) -> str:
        return f"127.0.0.1:{self._ports[number]}"

    @property
    def bootstrap(self) -> str:
        """Of every broker, dead ones too."""
        return ",".join(self.address(number) for number in self._ports)

    def controller(self) -> int:
        """Who is the controller, as all living brokers agree."""
        told = {controller_of(broker.address) for broker in self.brokers.values()}
        (controller,) = told if len(told) == 1 else (-1,)
        return controller

    def close(self) -> None:
        self._stack.close()


@contextmanager
def three_brokers(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    cluster = Cluster(directory, settings)
    try:
        for number in NUMBERS:
            cluster.start(number)
        yield cluster
    finally:
        cluster.close()


def controller_of(address: str) -> int:
    with Client(address) as client:
        controller: int = client.call(k60_describe_cluster.DescribeClusterRequest(), CLUSTER_VERSION).controller_id
        return controller


def living_brokers(address: str) -> set[int]:
    """The brokers that may serve, as one of them tells."""
    with Client(address) as client:
        response = client.call(k60_describe_cluster.DescribeClusterRequest(), CLUSTER_VERSION)
        return {broker.broker_id for broker in response.brokers}


def leaders(address: str, topic: str) -> dict[int, int]:
    """The leaders of a topic's partitions, as one broker tells."""
    request = k03_metadata.MetadataRequest(
        [k03_metadata.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    with Client(address) as client:
        (told,) = client.call(request, METADATA_VERSION).topics
        return {partition.partition_index: partition.leader_id for partition in told.partitions}


def seconds_until(question: object, timeout: float) -> float:
    """How long it takes until the answer is true; too long is an error."""
    assert callable(question)
    started = time.monotonic()
    while not question():
        assert time.monotonic() - started < timeout, f"not so within {timeout} s"
        time.sleep(0.01)
    return time.monotonic() - started
