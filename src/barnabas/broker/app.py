"""The composition root: a broker is made here out of its parts, started and stopped in order.

Disk, network, clock, randomness, executor and metadata store are arguments; `process` makes the real ones.

Start: bind the listeners (a port in use must leave the logs as they are), lock and open the logs (recovering what an
unclean stop left), replay the metadata, register with the controller under a new broker epoch, take up the partitions,
and only then read the first request. Stop: the reverse.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Coroutine, Sequence
from random import Random
from typing import TYPE_CHECKING

from barnabas.broker.controller_client import ControllerClient
from barnabas.broker.damaged_replicas import DamagedReplicas
from barnabas.broker.dispatch import Dispatcher
from barnabas.broker.failed_disks import FailedDisks
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.groups import group_coordinator, topics_of
from barnabas.broker.heartbeats import Heartbeats
from barnabas.broker.leader_balance import LeaderBalance
from barnabas.broker.metrics import Metrics, PartitionSample
from barnabas.broker.peers import Address, Peers
from barnabas.broker.producer_ids import ProducerIds
from barnabas.broker.refused_batches import RefusedBatches
from barnabas.broker.replication import Replication
from barnabas.broker.sessions import Sessions
from barnabas.broker.transactions import transaction_coordinator
from barnabas.cluster import image as images
from barnabas.cluster.events import CreatedTopic, CreateTopics, NewTopic
from barnabas.cluster.metadata_log import MetadataLog
from barnabas.cluster.replicas import Replicas
from barnabas.cluster.throttle import Throttle
from barnabas.core import ids, logs
from barnabas.core.broker_keys import RACK_AWARE_SELECTOR
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.listeners import Endpoint, advertise
from barnabas.core.topic_keys import resolve_topic
from barnabas.net.server import Limits, Server
from barnabas.storage.log_config import LogConfig
from barnabas.storage.manager import LogManager

if TYPE_CHECKING:
    from barnabas.cluster.delta import Delta
    from barnabas.coordination.store import MetadataStore
    from barnabas.core.broker_config import BrokerConfig
    from barnabas.core.seams import Clock, Disk, Executor, Network
    from barnabas.storage.cleaner import Runner
    from barnabas.storage.log import Log

_log = logs.get_logger(__name__)
_SWEEPS_PER_IDLE_TIME = 10
_ON_DEMAND_PATIENCE_S = 2.0
_SHORTEST_SWEEP_SECONDS, _LONGEST_SWEEP_SECONDS = 0.1, 60.0


class StartError(Exception):
    """The broker cannot start; the message says why, and what to do, in one line."""


class Broker:
    """One broker, and what its handlers may use."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        disk: Disk,
        network: Network,
        clock: Clock,
        random: Random,
        executor: Executor,
        store: MetadataStore,
        hostname: str = "localhost",
        cleaning: Runner | None = None,
        boot_id: str = "",
    ) -> None:
        """`boot_id` is another one whenever the machine has gone down; empty if that is not known."""
        self.config = config
        self.broker_id = config.node_id
        self.clock = clock
        self.executor = executor
        self.fetch_max_bytes: int = config["fetch.max.bytes"]
        self.reads_by_rack = config["replica.selector.class"] == RACK_AWARE_SELECTOR
        self.leader_throttle = Throttle(lambda: config["leader.replication.throttled.rate"])
        self.inter_broker_listener = config.inter_broker_listener
        self.cluster_id = ""
        self.broker_epoch = -1
        self.metrics = Metrics()
        self.call_later = asyncio.get_running_loop().call_later
        self.damaged_replicas = DamagedReplicas(self)
        self.manager = LogManager(
            disk, clock, executor, config, random, self.metrics, self._logs_lost, cleaning, self.damaged_replicas.found
        )
        self.metadata = MetadataLog(store, clock, random, config)
        self._sessions = Sessions(self.metadata, network, clock, config)
        self.controller = ControllerClient(self.metadata, self._sessions, network, self.inter_broker_listener)
        self.heartbeats = Heartbeats(self, disk, random, boot_id)
        self.replicas = Replicas(self.broker_id, self.manager, self.log_config)
        self.peers = Peers(network, self.address_of, f"barnabas-broker-{self.broker_id}")
        self._failed_disks = FailedDisks(self, disk)
        self._replication = Replication(self, network)
        self.fetch_sessions = FetchSessions(config["max.incremental.fetch.session.cache.slots"], random)
        self.producer_ids = ProducerIds(self)
        self.refused_batches = RefusedBatches(clock)
        self.groups = group_coordinator(self, random)
        self.transactions = transaction_coordinator(self)
        self._store = store
        self._random = random
        self._hostname = hostname
        self._dispatcher = Dispatcher(self, self.metrics, clock.monotonic)
        self.server = Server(network, clock, self._dispatcher.serve, self._dispatcher.bad_frame, self._limits())
        self._tasks: list[asyncio.Task[None]] = []
        self.endpoints: tuple[Endpoint, ...] = ()

    def _limits(self) -> Limits:
        config = self.config
        max_frame_bytes = config["socket.request.max.bytes"]
        max_held_bytes = config["queued.max.request.bytes"]
        max_idle_ms = config["connections.max.idle.ms"]
        return Limits(
            max_frame_bytes=max_frame_bytes,
            max_held_bytes=max_held_bytes if max_held_bytes > 0 else sys.maxsize,
            max_connections=config["max.connections"],
            max_connections_per_ip=config["max.connections.per.ip"],
            max_idle_seconds=max_idle_ms / 1000 if max_idle_ms >= 0 else math.inf,
        )

    # life

    async def start(self) -> None:
        """Serve; returns when the first request may come."""
        self.endpoints = self._listen()
        await self._store.open()
        proposed = ids.uuid_text(ids.random_uuid(self._random))
        self.cluster_id = await self.metadata.persist(lambda: self._store.cluster_id(proposed))
        self.controller.cluster_id = self.cluster_id
        try:
            await self.manager.open(self.broker_id, self.cluster_id)
        except (KafkaError, OSError) as error:
            raise StartError(str(error)) from error
        self.metadata.subscribe(self._metadata_changed)
        self._spawn(self.replicas.run())
        await self.metadata.start()
        try:
            await self.heartbeats.enter()
        except KafkaError as error:
            raise StartError(str(error)) from error
        await self.replicas.settled()
        # Only now: what the metadata said before was of an earlier life of this broker, under older leader epochs.
        self.replicas.coordinate({each.topic: each for each in (self.groups, self.transactions)})
        await self.manager.set_strays_aside()
        self.manager.start_background_work()
        self._spawn(self._close_idle_connections())
        self.server.start_serving()
        self._spawn(self.heartbeats.run())
        self._spawn(self._sessions.run())
        self._spawn(self._failed_disks.run())
        self._spawn(self.damaged_replicas.run())
        self._spawn(LeaderBalance(self.metadata, self.config).run())
        self._spawn(self._replication.run())

    def _listen(self) -> tuple[Endpoint, ...]:
        bound = []
        for endpoint in self.config.listeners:
            try:
                listener = self.server.listen(endpoint.name, endpoint.host, endpoint.port)
            except OSError as error:
                raise StartError(
                    f"cannot listen on {endpoint.host or '*'}:{endpoint.port}: {error.strerror or error}; "
                    "choose another port or stop what uses it"
                ) from error
            bound.append(endpoint._replace(port=listener.port))
        return advertise(bound, self.config.advertised, self._hostname)

    async def stop(self) -> None:
        """Stop cleanly: leaders elsewhere, no new requests, everything on disk, the logs marked as closed in order."""
        await self.heartbeats.leave()
        self.server.close()
        await self._replication.close()
        self.groups.close()
        self.transactions.close()
        await self._dispatcher.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.controller.close()
        self.peers.close()
        await self.manager.close(self.broker_epoch)
        await self.metadata.stop()
        await self._store.close()

    def _logs_lost(self, lost: list[Log]) -> None:
        self.replicas.logs_lost(lost)
        self._failed_disks.look()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        self._tasks.append(asyncio.create_task(self._told(work)))

    async def _told(self, work: Coroutine[None, None, None]) -> None:
        """Work that is to go on for as long as the broker; nobody waits for it, so its failure is told here."""
        try:
            await work
        except Exception:
            _log.exception("background work has failed", work=repr(work))
            self.metrics.unhandled_errors += 1

    async def _close_idle_connections(self) -> None:
        while True:
            pause = self.server.limits.max_idle_seconds / _SWEEPS_PER_IDLE_TIME
            await asyncio.sleep(min(max(pause, _SHORTEST_SWEEP_SECONDS), _LONGEST_SWEEP_SECONDS))
            self.server.close_idle()

    # metadata

    def _metadata_changed(self, delta: Delta, image: images.Image) -> None:
        own = images.ConfigResource(images.BROKER_RESOURCE, str(self.broker_id))
        everybody = images.ConfigResource(images.BROKER_RESOURCE, "")
        if own in delta.configs or everybody in delta.configs:
            changed = self.config.set_dynamic(image.configs.get(own, {}), image.configs.get(everybody, {}))
            if changed:
                _log.info("configuration changed", keys=",".join(sorted(changed)))
                self.server.limits = self._limits()
                for topic in image.topics.values():
                    self.replicas.reconfigure(topic)
                self._replication.share_out()
        self.replicas.follow(delta, image)
        if any(directory.is_offline for directory in self.manager.directories):
            self._failed_disks.look()
        if delta.created or delta.deleted or delta.partitions:
            topics = topics_of(image)
            for driver in self.groups.drivers():
                driver.tell(lambda shard, now: shard.topics_changed(topics, now))

    def address_of(self, broker_id: int) -> Address | None:
        """Where a registered broker listens for other brokers."""
        registered = self.metadata.image.brokers.get(broker_id)
        endpoint = registered.endpoint(self.inter_broker_listener) if registered is not None else None
        return (endpoint.host, endpoint.port) if endpoint is not None else None

    def log_config(self, topic: str) -> LogConfig:
        """A topic's settings as they are now."""
        overrides = self.metadata.image.config(images.TOPIC_RESOURCE, topic)
        return LogConfig.from_values(resolve_topic(overrides, self.config))

    def partition_samples(self) -> list[PartitionSample]:
        """Sizes and offsets of all partitions, for the metrics."""
        return [
            PartitionSample(
                log.topic,
                log.partition,
                log.log_start_offset,
                log.high_watermark,
                log.log_end_offset,
                log.size_bytes,
            )
            for log in self.replicas.logs()
        ]

    async def create_topics_on_demand(self, names: Sequence[str]) -> dict[str, ErrorCode]:
        """Create topics that somebody asked about, with the broker's defaults; what was refused, and why."""
        try:
            created = await self.create_topics(tuple(NewTopic(name) for name in dict.fromkeys(names)))
        except KafkaError as error:  # who asked comes again, and meanwhile hears that there is no such topic
            _log.warning("topics not created on demand", problem=str(error))
            return {}
        return {topic.name: topic.error.code for topic in created if topic.error}

    async def create_topics(self, topics: tuple[NewTopic, ...]) -> tuple[CreatedTopic, ...]:
        """Create topics that this broker needs now.

        REQUEST_TIMED_OUT comes soon, or at once where waiting is known to be in vain: whatever else the client has sent
        on its connection waits meanwhile.
        """
        if self.metadata.trouble:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, self.metadata.trouble)

        async def create() -> tuple[CreatedTopic, ...]:
            created = await self.controller.submit(CreateTopics(topics), _ON_DEMAND_PATIENCE_S)
            await self.catch_up()
            return created

        return await self.controller.persist(create, _ON_DEMAND_PATIENCE_S)

    async def catch_up(self) -> None:
        """Return once everything that the controller has answered before is in effect here too."""
        await self.metadata.refresh()
        await self.replicas.usable()
