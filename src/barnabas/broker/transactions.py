"""The coordinator of transactions: `__transaction_state`, and the markers that its decisions put into partitions.

A decision is a record of the coordinator's; only when that is committed are markers written, and only when every
partition has its marker is the transaction complete. Markers are written again and again until they are, or the
coordinator moves to another broker, which then does the same from the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from barnabas.broker.coordinator_runtime import ShardDriver
from barnabas.broker.coordinators import Coordinator
from barnabas.broker.groups import OFFSETS_TOPIC
from barnabas.cluster.events import NewTopic
from barnabas.coordinator.outcome import Now, Outcome
from barnabas.coordinator.transaction import TopicPartition
from barnabas.core import logs
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.records.control import ControlType, EndMarker

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.cluster.partition import Partition
    from barnabas.coordinator.group_shard import GroupShard
    from barnabas.coordinator.transaction_shard import MarkerToWrite, TransactionShard

TRANSACTIONS_TOPIC = "__transaction_state"
_REPLICAS = "transaction.state.log.replication.factor"
_RETRY_SECONDS = 0.1
_GONE = -2  # in place of a leader: there is no such partition any more
_BETWEEN_BROKERS = 2  # the version of WriteTxnMarkers that coordinators speak
_REFUSALS = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
"""What no repetition will change: a newer coordinator, or the producer's next transaction, was faster."""
_log = logs.get_logger(__name__)


def transaction_coordinator(broker: Broker) -> Coordinator[TransactionShard]:
    config = broker.config
    settings = NewTopic(
        TRANSACTIONS_TOPIC,
        config["transaction.state.log.num.partitions"],
        config[_REPLICAS],
        configs={
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config["transaction.state.log.min.isr"]),
            "segment.bytes": str(config["transaction.state.log.segment.bytes"]),
            "unclean.leader.election.enable": "false",
        },
    )
    markers = Markers(broker)
    return Coordinator(
        broker,
        TRANSACTIONS_TOPIC,
        settings,
        lambda partition: _new_shard(broker, partition),
        markers.committed,
        may_have_fewer_replicas=not config.is_chosen(_REPLICAS),
    )


def _new_shard(broker: Broker, partition: Partition) -> TransactionShard:
    from barnabas.coordinator.transaction_shard import TransactionShard  # a start without transactions does without it

    return TransactionShard(
        partition.leader_epoch,
        broker.producer_ids.take,
        max_timeout_ms=broker.config["transaction.max.timeout.ms"],
        id_expiration_ms=broker.config["transactional.id.expiration.ms"],
    )


class Markers:
    """Has markers written into partitions, by the brokers that lead them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tasks: set[asyncio.Task[None]] = set()

    def committed(self, driver: ShardDriver[TransactionShard], outcome: Outcome) -> None:
        """A decision is committed: now its partitions may learn of it."""
        for marker in getattr(outcome, "markers", ()):
            task = asyncio.ensure_future(self._write(driver, marker))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _write(self, driver: ShardDriver[TransactionShard], marker: MarkerToWrite) -> None:
        left = set(marker.partitions)
        while left and not driver.is_closed:
            writing = [self._write_at(leader, led, marker) for leader, led in self._by_leader(left).items()]
            written = [partition for done in await asyncio.gather(*writing) for partition in done]
            left.difference_update(written)
            if written:
                driver.tell(_markers_written(marker, written))
            if left:
                await asyncio.sleep(_RETRY_SECONDS)

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in sorted(partitions):
            found = self._broker.metadata.image.partition(partition.topic, partition.partition)
            by_leader.setdefault(_GONE if found is None else found.leader, []).append(partition)
        return by_leader

    async def _write_at(self, leader: int, led: list[TopicPartition], marker: MarkerToWrite) -> list[TopicPartition]:
        """The partitions that have their marker, or will never need one."""
        broker = self._broker
        if leader == _GONE:
            return led
        if leader == broker.broker_id:
            outcomes = await asyncio.gather(
                *(outcome_of_marker(broker, each.topic, each.partition, marker) for each in led)
            )
            codes = dict(zip(led, outcomes))
        else:
            codes = await self._ask(leader, led, marker)
        for partition, code in codes.items():
            if code in _REFUSALS:
                _log.warning("marker refused", topic=partition.topic, partition=partition.partition, error=code.name)
        return [partition for partition, code in codes.items() if code is ErrorCode.NONE or code in _REFUSALS]

    async def _ask(
        self, leader: int, led: list[TopicPartition], marker: MarkerToWrite
    ) -> dict[TopicPartition, ErrorCode]:
        """What another broker says of the partitions that it leads; of none, if it does not answer."""
        from barnabas.wire.messages import k27_write_txn_markers as k27  # only brokers with peers send it

        topics: dict[str, k27.WritableTxnMarkerTopic] = {}
        for partition in led:
            topic = topics.setdefault(partition.topic, k27.WritableTxnMarkerTopic(partition.topic))
            topic.partition_indexes.append(partition.partition)
        asked = k27.WritableTxnMarker(
            marker.producer_id,
            marker.producer_epoch,
            marker.commit,
            list(topics.values()),
            marker.coordinator_epoch,
            marker.transaction_version,
        )
        try:
            response = await self._broker.peers.request(leader, k27.WriteTxnMarkersRequest([asked]), _BETWEEN_BROKERS)
        except OSError:
            return {}
        return {
            TopicPartition(topic.name, each.partition_index): ErrorCode(each.error_code)
            for result in response.markers
            for topic in result.topics
            for each in topic.partitions
        }


async def outcome_of_marker(broker: Broker, topic: str, index: int, marker: MarkerToWrite) -> ErrorCode:
    """Write a marker to a partition that this broker should lead; how that ended."""
    try:
        await write_marker(broker, topic, index, marker)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


async def write_marker(broker: Broker, topic: str, index: int, marker: MarkerToWrite) -> None:
    """Append a marker to a partition that this broker leads, and wait until it is committed."""
    partition = broker.replicas.get(topic, index)
    end = EndMarker(ControlType.COMMIT if marker.commit else ControlType.ABORT, marker.coordinator_epoch)
    try:
        info = partition.append_end_marker(
            end, marker.producer_id, marker.producer_epoch, marker.transaction_version, broker.clock.now_ms()
        )
    except OSError as error:
        raise KafkaError(broker.replicas.disk_failed(partition, error)) from error
    if not partition.is_acknowledged(info, -1):
        committed: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        partition.when_acknowledged(info, -1, lambda code: committed.set_result(code))
        code = await committed
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
    if topic == OFFSETS_TOPIC:
        group_driver = broker.groups.driver(index)
        if group_driver is not None:
            group_driver.tell(_transaction_ended(marker.producer_id, marker.commit))


def _markers_written(
    marker: MarkerToWrite, written: list[TopicPartition]
) -> Callable[[TransactionShard, Now], Outcome]:
    def event(shard: TransactionShard, now: Now) -> Outcome:
        return shard.markers_written(marker, written, now)

    return event


def _transaction_ended(producer_id: int, committed: bool) -> Callable[[GroupShard, Now], Outcome]:
    def event(shard: GroupShard, now: Now) -> Outcome:
        shard.replay_end(producer_id, committed)
        return Outcome()

    return event
