"""Three brokers that share a metadata store, each a process that a test can kill, stop, pause and start again."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from barnabas.wire.messages import k03_metadata, k60_describe_cluster
from tests.broker.wire_client import Client
from tests.peers import BarnabasServer, free_port

NUMBERS = (1, 2, 3)
CLUSTER_VERSION = 2
METADATA_VERSION = 12


class Cluster:
    """Brokers under their node ids; one that does not run is absent until it is started again, at the same address."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        """The metadata is in an embedded store, unless the settings name ZooKeeper."""
        self.directory = directory
        store = {"barnabas.metadata.file": str(directory / "metadata.sqlite")}
        chosen = settings or {}
        self._settings = {
            "offsets.topic.replication.factor": "1",
            **({} if "zookeeper.connect" in chosen else store),
            **chosen,
        }
        self._ports: dict[int, int] = {}
        self._stack = ExitStack()
        self.brokers: dict[int, BarnabasServer] = {}

    def start(self, number: int, own: Mapping[str, str] | None = None) -> BarnabasServer:
        """`own` are settings of this broker alone."""
        broker = self.serve(number, {**self._settings, "node.id": str(number), **(own or {})})
        self.brokers[number] = self._stack.enter_context(broker)
        return broker

    def serve(self, number: int, settings: Mapping[str, str]) -> BarnabasServer:
        port = self._ports.setdefault(number, free_port())
        return BarnabasServer(self.data_dir(number), settings, port=port)

    def start_together(self, numbers: Iterable[int]) -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(self.start, numbers))

    def kill(self, *numbers: int) -> None:
        """As a crash of all of them at one moment."""
        killed = [self.brokers.pop(number) for number in numbers]
        for broker in killed:
            broker.process.send_signal(signal.SIGKILL)
        for broker in killed:
            broker.kill()

    def stop(self, number: int) -> None:
        """In order; a broker that makes something of it fails the test."""
        broker = self.brokers.pop(number)
        code = broker.stop()
        assert code == 0, f"{broker} ended with {code}\n{broker.tail()}"

    @contextmanager
    def paused(self, number: int) -> Iterator[None]:
        """It keeps its connections and answers nobody."""
        broker = self.brokers.pop(number)
        broker.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            broker.process.send_signal(signal.SIGCONT)
        self.brokers[number] = broker

    def data_dir(self, number: int) -> Path:
        return self.directory / f"broker-{number}"

    def address(self, number: int) -> str:
        return f"127.0.0.1:{self._ports[number]}"

    @property
    def some_address(self) -> str:
        """Of a broker that runs."""
        return next(iter(self.brokers.values())).address

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
    """Ready when each of them knows of all."""
    cluster = Cluster(directory, settings)
    try:
        cluster.start_together(NUMBERS)
        for broker in cluster.brokers.values():
            seconds_until(lambda at=broker.address: living_brokers(at) == set(NUMBERS), 60)
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
    return {partition.partition_index: partition.leader_id for partition in partitions(address, topic)}


def in_sync(address: str, topic: str) -> dict[int, set[int]]:
    """The in-sync replicas of a topic's partitions, as one broker tells."""
    return {partition.partition_index: set(partition.isr_nodes) for partition in partitions(address, topic)}


def partitions(address: str, topic: str) -> list[k03_metadata.MetadataResponsePartition]:
    request = k03_metadata.MetadataRequest(
        [k03_metadata.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    with Client(address) as client:
        (told,) = client.call(request, METADATA_VERSION).topics
        partitions: list[k03_metadata.MetadataResponsePartition] = told.partitions
        return partitions


def seconds_until(question: object, timeout: float) -> float:
    """How long it takes until the answer is true; too long is an error."""
    assert callable(question)
    started = time.monotonic()
    while not question():
        assert time.monotonic() - started < timeout, f"not so within {timeout} s"
        time.sleep(0.05)
    return time.monotonic() - started
