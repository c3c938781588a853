"""What connects a broker's replicas with the others: fetchers that copy from leaders, wishes for other ISRs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.cluster.copy_session import FetchSettings
from barnabas.cluster.events import AlteredPartition, AlterPartition, Failure
from barnabas.cluster.isr import Lag, Members
from barnabas.cluster.replica_fetcher import Surroundings
from barnabas.cluster.replica_fetchers import ReplicaFetchers
from barnabas.cluster.throttle import Throttle

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.cluster.partition import Partition
    from barnabas.core.seams import Network


class Replication:
    """Started with the broker's tasks, by `run`; `close` ends the copying, and nothing is asked for any more."""

    def __init__(self, broker: Broker, network: Network) -> None:
        config = broker.config
        self._broker = broker
        self._asking: set[asyncio.Task[AlteredPartition | Failure]] = set()
        self._fetchers = ReplicaFetchers(
            Surroundings(
                network,
                broker.broker_id,
                lambda: broker.broker_epoch,
                broker.address_of,
                broker.manager.flush,
                broker.manager.checkpoint_log,
                broker.replicas.disk_failed,
                Throttle(lambda: config["follower.replication.throttled.rate"]),
                broker.clock,
            ),
            FetchSettings(
                config["replica.fetch.wait.max.ms"],
                config["replica.fetch.min.bytes"],
                config["replica.fetch.max.bytes"],
                config["replica.fetch.response.max.bytes"],
                config["replica.fetch.backoff.ms"],
                config["replica.socket.timeout.ms"],
            ),
            lambda: int(config["num.replica.fetchers"]),
        )
        replicas = broker.replicas
        replicas.fetchers = self._fetchers
        replicas.alter_isr = self._alter_isr
        replicas.lag = Lag(config["replica.lag.time.max.ms"], config["replica.lag.max.messages"])

    def share_out(self) -> None:
        """There may be another number of fetchers now."""
        if self._broker.replicas.fetchers is not None:
            self._fetchers.share_out(self._broker.replicas.partitions.values())

    async def run(self) -> None:
        await self._broker.replicas.drop_lagging()

    async def close(self) -> None:
        replicas = self._broker.replicas
        replicas.fetchers = replicas.alter_isr = None
        await self._fetchers.close()
        asking = list(self._asking)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    def _alter_isr(self, partition: Partition, members: Members) -> asyncio.Future[AlteredPartition | Failure]:
        broker = self._broker
        own = (broker.broker_id, broker.broker_epoch)
        event = AlterPartition(
            *own,
            partition.log.topic_id,
            partition.log.partition,
            partition.leader_epoch,
            partition.partition_epoch,
            tuple(own if member == broker.broker_id else (member, epoch) for member, epoch in members),
        )
        task: asyncio.Task[AlteredPartition | Failure] = asyncio.create_task(broker.controller.submit(event))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        return task
