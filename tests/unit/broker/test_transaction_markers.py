"""Markers are written once a decision is committed, again and again until every partition has one or needs none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker import transactions
from barnabas.broker.transactions import Markers, write_marker
from barnabas.cluster.partition import Partition
from barnabas.coordinator.outcome import Now, Outcome
from barnabas.coordinator.transaction import TopicPartition
from barnabas.coordinator.transaction_shard import MarkerToWrite, TransactionOutcome
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.records.batch import headers
from barnabas.records.control import ControlType, EndMarker, parse_end_marker
from barnabas.wire.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.unit.broker.shards import ME, OTHER, RunningClock, Stage, held, run, until
from tests.unit.storage.storage_helpers import append

ORDERS = TopicPartition("orders", 0)
OFFSETS = TopicPartition("__consumer_offsets", 0)
PRODUCER_ID, EPOCH = 7, 3


def marker(*partitions: TopicPartition, commit: bool = True) -> MarkerToWrite:
    return MarkerToWrite("shop", PRODUCER_ID, EPOCH, 5, commit, 0, partitions or (ORDERS,))


class Driver:
    """The coordinator's side: notes which partitions are reported as done."""

    def __init__(self) -> None:
        self.is_closed = False
        self.done: list[TopicPartition] = []

    def tell(self, event: Callable[[Any, Any], Outcome]) -> None:
        event(self, None)

    def markers_written(self, marker: MarkerToWrite, partitions: list[TopicPartition], now: Now) -> Outcome:
        self.done += partitions
        return Outcome()


class GroupDriver:
    """The driver of the groups' partition: notes which transactions have ended."""

    def __init__(self) -> None:
        self.ended: list[tuple[int, bool]] = []

    def tell(self, event: Callable[[Any, Any], Outcome]) -> None:
        event(self, None)

    def replay_end(self, producer_id: int, committed: bool) -> None:
        self.ended.append((producer_id, committed))


class World:
    """The partitions that this broker leads; a topic that is not among them is gone."""

    def __init__(self, **partitions: Partition | KafkaError) -> None:
        self.partitions = partitions
        self.failed: list[OSError] = []
        self.group_driver: GroupDriver | None = None
        self.leaders: dict[str, int] = {}
        """Of topics that another broker leads."""
        self.asked: list[WritableTxnMarker] = []
        self.answers: list[ErrorCode | OSError] = []
        """Of other brokers, one for each question."""
        self.broker: Any = SimpleNamespace(
            broker_id=ME,
            metadata=SimpleNamespace(image=self),
            replicas=self,
            peers=self,
            clock=RunningClock(),
            groups=SimpleNamespace(driver=lambda index: self.group_driver),
        )

    def partition(self, topic: str, index: int) -> Any:
        """As the metadata have it."""
        is_known = topic in self.partitions or topic in self.leaders
        return SimpleNamespace(leader=self.leaders.get(topic, ME)) if is_known else None

    async def request(self, broker_id: int, request: WriteTxnMarkersRequest, version: int) -> WriteTxnMarkersResponse:
        """Another broker's answer for all partitions that it is asked for."""
        (asked,) = request.markers
        assert {self.leaders[topic.name] for topic in asked.topics} == {broker_id}
        self.asked.append(asked)
        answer = self.answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        topics = [
            WritableTxnMarkerTopicResult(
                topic.name, [WritableTxnMarkerPartitionResult(index, answer) for index in topic.partition_indexes]
            )
            for topic in asked.topics
        ]
        return WriteTxnMarkersResponse([WritableTxnMarkerResult(asked.producer_id, topics)])

    def get(self, topic: str, index: int) -> Partition:
        found = self.partitions[topic]
        if isinstance(found, KafkaError):
            raise found
        return found

    def disk_failed(self, partition: Partition, error: OSError) -> ErrorCode:
        self.failed.append(error)
        return ErrorCode.KAFKA_STORAGE_ERROR


def open_transaction(stage: Stage, epoch: int = EPOCH) -> Partition:
    append(stage.log, b"x", producer=(PRODUCER_ID, epoch, 0), transactional=True)
    stage.lead()
    return stage.partition


def markers_in(stage: Stage) -> list[EndMarker | None]:
    view = memoryview(stage.log.read(0, 1 << 20, stage.log.log_end_offset, True).read())
    return [parse_end_marker(view[at : at + header.size]) for at, header in headers(view) if header.is_control]


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "_RETRY_SECONDS", 0.001)


def committed(world: World, driver: Driver, *markers: MarkerToWrite) -> Markers:
    """What happens when a coordinator's decision is committed."""
    writer = Markers(world.broker)
    writer.committed(driver, TransactionOutcome(markers=list(markers)))  # type: ignore[arg-type]
    return writer


# one marker


@pytest.mark.parametrize(("commit", "kind"), [(True, ControlType.COMMIT), (False, ControlType.ABORT)])
def test_a_marker_ends_the_transaction_in_the_log(tmp_path: Path, commit: bool, kind: ControlType) -> None:
    async def story() -> None:
        stage = Stage(tmp_path)
        world = World(orders=open_transaction(stage))
        assert stage.log.last_stable_offset == 0
        await write_marker(world.broker, *ORDERS, marker(commit=commit))
        assert markers_in(stage) == [EndMarker(kind, 5)]
        assert stage.log.last_stable_offset == stage.log.log_end_offset == 2

    run(story())


def test_a_marker_counts_when_the_watermark_has_passed_it(tmp_path: Path) -> None:
    async def story() -> None:
        stage = held(tmp_path)
        world = World(orders=open_transaction(stage))
        stage.commit()
        writing = asyncio.ensure_future(write_marker(world.broker, *ORDERS, marker()))
        await asyncio.sleep(0.01)
        assert not writing.done()
        stage.commit()
        await asyncio.wait_for(writing, 5)

    run(story())


def test_a_leadership_that_ends_before_that_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        stage = held(tmp_path)
        world = World(orders=open_transaction(stage))
        writing = asyncio.ensure_future(write_marker(world.broker, *ORDERS, marker()))
        await asyncio.sleep(0)
        stage.lose()
        with pytest.raises(KafkaError) as refused:
            await asyncio.wait_for(writing, 5)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(story())


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_among_the_offsets_is_told_to_the_groups(tmp_path: Path, commit: bool) -> None:
    async def story() -> None:
        stage = held(tmp_path)
        world = World(__consumer_offsets=open_transaction(stage))
        stage.commit()
        world.group_driver = GroupDriver()
        writing = asyncio.ensure_future(write_marker(world.broker, *OFFSETS, marker(OFFSETS, commit=commit)))
        await asyncio.sleep(0.01)
        assert world.group_driver.ended == []  # not before the marker is committed
        stage.commit()
        await asyncio.wait_for(writing, 5)
        assert world.group_driver.ended == [(PRODUCER_ID, commit)]

    run(story())


def test_a_disk_that_fails_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        broken = SimpleNamespace(append_end_marker=fail)
        world = World(orders=broken)  # type: ignore[arg-type]
        with pytest.raises(KafkaError) as refused:
            await write_marker(world.broker, *ORDERS, marker())
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert [error.errno for error in world.failed] == [5]

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    run(story())


# all markers of a decision


def test_every_partition_of_a_decision_is_reported(tmp_path: Path) -> None:
    async def story() -> None:
        orders, offsets = Stage(tmp_path / "1"), Stage(tmp_path / "2")
        world = World(orders=open_transaction(orders), __consumer_offsets=open_transaction(offsets))
        driver = Driver()
        committed(world, driver, marker(ORDERS, OFFSETS))
        await until(lambda: len(driver.done) == 2)
        assert set(driver.done) == {ORDERS, OFFSETS}
        assert markers_in(orders) == markers_in(offsets) == [EndMarker(ControlType.COMMIT, 5)]

    run(story())


def test_a_partition_that_has_no_leader_is_tried_until_it_has(tmp_path: Path) -> None:
    async def story() -> None:
        orders, offsets = Stage(tmp_path / "1"), Stage(tmp_path / "2")
        absent = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        world = World(orders=open_transaction(orders), __consumer_offsets=absent)
        driver = Driver()
        committed(world, driver, marker(ORDERS, OFFSETS))
        await until(lambda: driver.done)
        await asyncio.sleep(0.01)
        assert driver.done == [ORDERS]
        world.partitions["__consumer_offsets"] = open_transaction(offsets)
        await until(lambda: driver.done == [ORDERS, OFFSETS])
        assert len(markers_in(orders)) == 1

    run(story())


def test_a_topic_that_is_gone_needs_no_marker() -> None:
    async def story() -> None:
        driver = Driver()
        committed(World(), driver, marker(ORDERS))
        await until(lambda: driver.done == [ORDERS])

    run(story())


def test_a_partition_that_knows_of_a_later_epoch_needs_no_marker(tmp_path: Path) -> None:
    async def story() -> None:
        stage = Stage(tmp_path)
        world = World(orders=open_transaction(stage, epoch=EPOCH + 1))
        driver = Driver()
        committed(world, driver, marker(ORDERS))
        await until(lambda: driver.done == [ORDERS])
        assert markers_in(stage) == []

    run(story())


def test_a_coordinator_that_was_replaced_tries_no_more(tmp_path: Path) -> None:
    async def story() -> None:
        stage = Stage(tmp_path)
        world = World(orders=KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        driver = Driver()
        writer = committed(world, driver, marker(ORDERS))
        await asyncio.sleep(0.005)
        driver.is_closed = True
        await until(lambda: not writer._tasks)
        world.partitions["orders"] = open_transaction(stage)
        await asyncio.sleep(0.01)
        assert driver.done == []
        assert markers_in(stage) == []

    run(story())


# partitions that other brokers lead


def test_another_leader_is_asked_until_it_has_written_the_marker(tmp_path: Path) -> None:
    async def story() -> None:
        stage = Stage(tmp_path)
        world = World(orders=open_transaction(stage))
        world.leaders = {"__consumer_offsets": OTHER}
        world.answers = [ConnectionError("gone"), ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]
        driver = Driver()
        committed(world, driver, marker(ORDERS, OFFSETS))
        await until(lambda: driver.done == [ORDERS, OFFSETS])
        assert len(world.asked) == 3
        asked = world.asked[0]
        assert (asked.producer_id, asked.producer_epoch, asked.coordinator_epoch) == (PRODUCER_ID, EPOCH, 5)
        assert asked.transaction_result

    run(story())


def test_another_leader_is_asked_for_all_its_partitions_at_once() -> None:
    async def story() -> None:
        world = World()
        world.leaders = {"orders": OTHER, "__consumer_offsets": OTHER}
        world.answers = [ErrorCode.NONE]
        driver = Driver()
        partitions = (ORDERS, TopicPartition("orders", 1), OFFSETS)
        committed(world, driver, marker(*partitions))
        await until(lambda: set(driver.done) == set(partitions))
        assert len(world.asked) == 1

    run(story())


def test_another_leader_that_knows_of_a_later_epoch_needs_no_marker() -> None:
    async def story() -> None:
        world = World()
        world.leaders = {"orders": OTHER}
        world.answers = [ErrorCode.INVALID_PRODUCER_EPOCH]
        driver = Driver()
        committed(world, driver, marker(ORDERS))
        await until(lambda: driver.done == [ORDERS])

    run(story())
