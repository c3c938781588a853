"""A few brokers in one process, with real sockets and disks, and metadata that the test writes.

Only what replication needs is there: logs, partitions, a server with the broker's own handlers, and fetchers. The
controller is a stand-in that carries out every change of in-sync replicas, unless the test has it refuse or be silent.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from types import MappingProxyType, SimpleNamespace
from typing import Any

from barnabas.broker.dispatch import Dispatcher
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.metrics import Metrics
from barnabas.broker.process import ThreadExecutor
from barnabas.broker.refused_batches import RefusedBatches
from barnabas.cluster.copy_session import FetchSettings
from barnabas.cluster.delta import changes
from barnabas.cluster.events import AlteredPartition
from barnabas.cluster.image import EMPTY, Broker, Endpoint, Image, Topic
from barnabas.cluster.image import Partition as Registration
from barnabas.cluster.isr import Lag, Members
from barnabas.cluster.partition import Partition
from barnabas.cluster.replica_fetcher import Surroundings
from barnabas.cluster.replica_fetchers import ReplicaFetchers
from barnabas.cluster.replicas import Replicas
from barnabas.cluster.throttle import Throttle
from barnabas.core.broker_config import BrokerConfig
from barnabas.core.broker_keys import MAX_LONG
from barnabas.core.clock import SystemClock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.net.channel import Channel
from barnabas.net.server import Limits, Server
from barnabas.net.sockets import TcpNetwork
from barnabas.storage.disk import RealDisk
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.manager import LogManager
from tests.unit.storage.storage_helpers import NOW_MS, TOPIC_ID, batch

TOPIC = "topic"
LISTENER = "PLAINTEXT"
PATIENCE_S = 10.0


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  # nobody sets an event for what a test looks at
            await asyncio.sleep(0.005)


class ReplicaBroker:
    """What a handler sees as its broker."""

    def __init__(self, broker_id: int, directory: Path, cluster: ReplicaCluster) -> None:
        loop = asyncio.get_running_loop()
        self.broker_id = broker_id
        self.broker_epoch = 100 + broker_id
        self.clock = SystemClock()
        self.executor = ThreadExecutor(loop)
        self.config = BrokerConfig({"broker.id": str(broker_id), "log.dirs": str(directory)})
        self.metrics = Metrics()
        self.call_later = loop.call_later
        self.fetch_max_bytes = 1 << 25
        self.reads_by_rack = cluster.reads_by_rack
        self.leader_throttle = Throttle(lambda: cluster.leader_rate)
        self.refused_batches = RefusedBatches(self.clock)
        self.fetch_sessions = FetchSessions(100, Random(broker_id))
        self.inter_broker_listener = LISTENER
        self.metadata = SimpleNamespace(image=EMPTY)
        self.network = TcpNetwork(loop)
        self.manager = LogManager(
            RealDisk(), self.clock, self.executor, self.config, Random(broker_id), self.metrics, self._logs_lost
        )
        self.replicas = Replicas(broker_id, self.manager, lambda topic: cluster.log_config)
        self.replicas.lag = cluster.lag
        self.replicas.alter_isr = cluster.alter_isr
        self.fetchers = ReplicaFetchers(
            Surroundings(
                self.network,
                broker_id,
                lambda: self.broker_epoch,
                cluster.address_of,
                self.manager.flush,
                self.manager.checkpoint_log,
                self.replicas.disk_failed,
                Throttle(lambda: cluster.follower_rate),
                self.clock,
            ),
            cluster.fetch_settings,
            lambda: cluster.fetchers_per_leader,
        )
        self.replicas.fetchers = self.fetchers
        dispatcher = Dispatcher(self, self.metrics, self.clock.monotonic)  # type: ignore[arg-type]
        limits = Limits(1 << 26, 1 << 28, 1000, 1000, math.inf)
        self.server = Server(self.network, self.clock, dispatcher.serve, dispatcher.bad_frame, limits)
        self.port = self.server.listen(LISTENER, "127.0.0.1", 0).port
        self._tasks: list[asyncio.Task[None]] = []

    def _logs_lost(self, lost: list[Log]) -> None:
        self.replicas.logs_lost(lost)

    async def start(self) -> None:
        await self.manager.open(self.broker_id, "cluster")
        self._tasks = [asyncio.create_task(work) for work in (self.replicas.run(), self.replicas.drop_lagging())]
        self.server.start_serving()

    def learn(self, image: Image) -> None:
        delta = changes(self.metadata.image, image)
        self.metadata.image = image
        self.replicas.follow(delta, image)

    def partition(self, index: int = 0) -> Partition:
        return self.replicas.get(TOPIC, index)

    @property
    def log(self) -> Log:
        return self.partition().log

    @property
    def fetches(self) -> int:
        """How many were answered."""
        return sum(sum(histogram.buckets) for (key, _), histogram in self.metrics.requests.items() if key == 1)

    async def stop(self) -> None:
        self.server.close()
        await self.fetchers.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.manager.close()
        self.executor.close()


class ReplicaCluster:
    def __init__(
        self,
        directory: Path,
        brokers: int = 3,
        *,
        lag: Lag,
        settings: FetchSettings,
        reads_by_rack: bool,
        racks: Sequence[str],
        **config: Any,
    ) -> None:
        self.lag = lag
        self.racks = racks
        self.fetch_settings = settings
        self.log_config = LogConfig(**config)
        self.fetchers_per_leader = 1
        self.reads_by_rack = reads_by_rack
        self.leader_rate = self.follower_rate = MAX_LONG
        self.image = EMPTY
        self.refusal: ErrorCode | None = None
        self.is_silent = False
        self.asked: list[Members] = []
        self.cut_off: set[int] = set()
        """Brokers that the others can no longer find."""
        self.brokers = {
            broker_id: ReplicaBroker(broker_id, directory / str(broker_id), self) for broker_id in range(1, brokers + 1)
        }

    async def start(self) -> None:
        for broker in self.brokers.values():
            await broker.start()
        registered = {
            each.broker_id: Broker(
                each.broker_id,
                each.broker_epoch,
                bytes(16),
                (Endpoint(LISTENER, "127.0.0.1", each.port, 0),),
                {},
                self.racks[each.broker_id - 1] if self.racks else None,
                False,
                False,
                (),
                None,
            )
            for each in self.brokers.values()
        }
        self.image = replace(self.image, brokers=MappingProxyType(registered))

    def address_of(self, broker_id: int) -> tuple[str, int] | None:
        return None if broker_id in self.cut_off else ("127.0.0.1", self.brokers[broker_id].port)

    # metadata

    async def create(self, *partitions: Registration) -> None:
        await self.tell(replace(self.image, topics={TOPIC: Topic(TOPIC, TOPIC_ID, partitions)}))

    async def elect(self, leader: int, isr: tuple[int, ...], index: int = 0) -> None:
        """Another leader, under the next leader epoch."""
        was = self.registration(index)
        await self.change(
            index,
            leader=leader,
            isr=isr,
            leader_epoch=was.leader_epoch + 1,
            partition_epoch=was.partition_epoch + 1,
        )

    def registration(self, index: int = 0) -> Registration:
        return self.image.topics[TOPIC].partitions[index]

    async def change(self, index: int = 0, **fields: Any) -> None:
        topic = self.image.topics[TOPIC]
        partitions = list(topic.partitions)
        partitions[index] = replace(partitions[index], **fields)
        await self.tell(replace(self.image, topics={TOPIC: replace(topic, partitions=tuple(partitions))}))

    async def tell(self, image: Image) -> None:
        self.image = replace(image, topic_names={topic.id: name for name, topic in image.topics.items()})
        for broker in self.brokers.values():
            broker.learn(self.image)
        for broker in self.brokers.values():
            await broker.replicas.settled()

    def alter_isr(self, partition: Partition, members: Members) -> asyncio.Future[Any]:
        """The controller's part: carry it out, tell the leader at once and everybody a little later."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.asked.append(members)
        if self.is_silent:
            return answer
        was = self.registration(partition.log.partition)
        if self.refusal is not None:
            answer.set_exception(KafkaError(self.refusal))
        elif (was.leader_epoch, was.partition_epoch) != (partition.leader_epoch, partition.partition_epoch):
            answer.set_exception(KafkaError(ErrorCode.INVALID_UPDATE_VERSION))
        else:
            isr = tuple(broker_id for broker_id, _ in members)
            epoch = was.partition_epoch + 1
            answer.set_result(AlteredPartition(was.leader, was.leader_epoch, isr, epoch))
            topic = self.image.topics[TOPIC]
            partitions = list(topic.partitions)
            partitions[partition.log.partition] = replace(was, isr=isr, partition_epoch=epoch)
            self.image = replace(self.image, topics={TOPIC: replace(topic, partitions=tuple(partitions))})
            for broker in self.brokers.values():
                broker.learn(self.image)
        return answer

    # use

    def append(self, leader: int, *values: bytes, index: int = 0, acks: int = -1, **options: Any) -> Any:
        return self.brokers[leader].partition(index).append(batch(values or (b"value",), **options), NOW_MS, acks)

    async def produce(self, leader: int, *values: bytes, **options: Any) -> None:
        """Append, and wait for the acknowledgement of all in-sync replicas."""
        info = self.append(leader, *values, **options)
        partition = self.brokers[leader].partition(options.get("index", 0))
        if not partition.is_acknowledged(info, -1):
            done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
            partition.when_acknowledged(info, -1, done.set_result)
            assert await asyncio.wait_for(done, PATIENCE_S) is ErrorCode.NONE

    @contextlib.asynccontextmanager
    async def client(self, broker_id: int) -> AsyncIterator[Channel]:
        broker = self.brokers[broker_id]
        channel = await Channel.open(broker.network, "127.0.0.1", broker.port, "test")
        try:
            yield channel
        finally:
            channel.close()

    async def stop(self) -> None:
        for broker in self.brokers.values():
            await broker.stop()


QUICK = FetchSettings(wait_max_ms=200, backoff_ms=100)


@contextlib.asynccontextmanager
async def running(
    directory: Path,
    brokers: int = 3,
    *,
    lag: Lag | None = None,
    settings: FetchSettings = QUICK,
    reads_by_rack: bool = False,
    racks: Sequence[str] = (),
    **config: Any,
) -> AsyncIterator[ReplicaCluster]:
    cluster = ReplicaCluster(
        directory, brokers, lag=lag or Lag(), settings=settings, reads_by_rack=reads_by_rack, racks=racks, **config
    )
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()


def placed(*replicas: int, isr: tuple[int, ...] = (), leader: int = 0, epoch: int = 0) -> Registration:
    return Registration(replicas, isr or replicas, leader or replicas[0], epoch, 0)


def log_bytes(log: Log) -> bytes:
    """Everything in the segments, in order."""
    return b"".join(segment.file.read(0, segment.size) for segment in log.segments)
