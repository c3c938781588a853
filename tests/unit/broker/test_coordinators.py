"""A coordinator follows the leadership of its topic's partitions, and makes the topic when it is first needed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.coordinators import Coordinator
from barnabas.cluster.events import NewTopic
from barnabas.cluster.image import Image, Topic
from barnabas.cluster.image import Partition as Registration
from barnabas.coordinator.placement import partition_of
from barnabas.core.errors import ErrorCode, KafkaError
from tests.unit.broker.shards import HeldExecutor, Notes, RunningClock, Stage, outcome_of, read, run, until, write

TOPIC = "topic"
PARTITIONS = 4
SETTINGS = NewTopic(TOPIC, PARTITIONS, 3, configs={"cleanup.policy": "compact"})


class Metadata:
    """An image in which the topic appears when it is created, and what was asked for."""

    def __init__(self, registered: int = 1, error: KafkaError | None = None) -> None:
        self.image = Image(brokers={number: SimpleNamespace(fenced=number > 0) for number in range(registered)})  # type: ignore[misc]
        self.error = error
        self.created: list[NewTopic] = []

    def add_topic(self, partitions: int = PARTITIONS) -> None:
        registrations = tuple(Registration((1,), (1,), 1, 0, 0) for _ in range(partitions))
        self.image = Image(brokers=self.image.brokers, topics={TOPIC: Topic(TOPIC, bytes(16), registrations)})

    async def create_topics(self, topics: tuple[NewTopic, ...]) -> list[Any]:
        self.created += topics
        if self.error is None or self.error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            self.add_topic()
        return [SimpleNamespace(error=self.error)]


def coordinator(metadata: Metadata, *, may_have_fewer_replicas: bool = True) -> Coordinator[Notes]:
    broker: Any = SimpleNamespace(
        metadata=metadata,
        create_topics=metadata.create_topics,
        clock=RunningClock(),
        executor=HeldExecutor(),
        manager=SimpleNamespace(scrubber=SimpleNamespace(suspect=lambda log, offset: None)),
    )
    return Coordinator(
        broker, TOPIC, SETTINGS, lambda partition: Notes(), may_have_fewer_replicas=may_have_fewer_replicas
    )


async def loaded(found: Coordinator[Notes], index: int) -> None:
    await until(lambda: (driver := found.driver(index)) and driver.shard)


# the topic


@pytest.mark.parametrize(("registered", "replicas"), [(0, 1), (1, 1), (2, 2), (3, 3), (5, 3)])
def test_the_topic_is_made_with_as_many_replicas_as_there_can_be_once_all_are_back(
    registered: int, replicas: int
) -> None:
    async def story() -> None:
        metadata = Metadata(registered)
        assert await coordinator(metadata).ensure_topic() == PARTITIONS
        (wanted,) = metadata.created
        assert (wanted.name, wanted.num_partitions, wanted.replication_factor) == (TOPIC, PARTITIONS, replicas)
        assert wanted.configs == SETTINGS.configs

    run(story())


@pytest.mark.parametrize("registered", [1, 2, 3])
def test_the_topic_has_the_replicas_that_somebody_has_asked_for(registered: int) -> None:
    async def story() -> None:
        metadata = Metadata(registered)
        await coordinator(metadata, may_have_fewer_replicas=False).ensure_topic()
        assert [wanted.replication_factor for wanted in metadata.created] == [3]

    run(story())


def test_a_topic_that_is_there_is_taken_as_it_is() -> None:
    async def story() -> None:
        metadata = Metadata()
        metadata.add_topic(7)
        assert await coordinator(metadata).ensure_topic() == 7
        assert metadata.created == []

    run(story())


def test_a_topic_that_another_broker_made_at_the_same_time_will_do() -> None:
    async def story() -> None:
        metadata = Metadata(error=KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS))
        assert await coordinator(metadata).ensure_topic() == PARTITIONS

    run(story())


def test_a_topic_that_cannot_be_made_is_a_coordinator_not_available() -> None:
    async def story() -> None:
        metadata = Metadata(error=KafkaError(ErrorCode.POLICY_VIOLATION, "no"))
        with pytest.raises(KafkaError) as refused:
            await coordinator(metadata).ensure_topic()
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(story())


# where a key belongs


def test_a_key_belongs_to_the_partition_that_javas_hash_says() -> None:
    async def story() -> None:
        metadata = Metadata()
        found = coordinator(metadata)
        with pytest.raises(KafkaError) as refused:
            found.partition_for("orders")
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
        metadata.add_topic()
        assert found.partition_for("orders") == partition_of("orders", PARTITIONS)

    run(story())


def test_a_key_of_another_brokers_partition_is_not_coordinated_here() -> None:
    async def story() -> None:
        metadata = Metadata()
        metadata.add_topic()
        with pytest.raises(KafkaError) as refused:
            coordinator(metadata).execute("orders", read(b"a"))
        assert refused.value.code is ErrorCode.NOT_COORDINATOR

    run(story())


# leadership


def key_of(index: int) -> str:
    """A key that belongs to a partition."""
    return next(key for key in map(str, range(1000)) if partition_of(key, PARTITIONS) == index)


def test_a_shard_comes_and_goes_with_the_leadership(tmp_path: Path) -> None:
    async def story() -> None:
        metadata = Metadata()
        metadata.add_topic()
        found, stage, key = coordinator(metadata), Stage(tmp_path), key_of(0)
        stage.lead()
        found.follow(stage.partition)
        assert await outcome_of(found.execute(key, read(b"a"))) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await loaded(found, 0)
        assert await outcome_of(found.execute(key, write(b"a", b"kept"))) == "wrote a"

        waiting = found.execute(key, lambda shard, token, now: write(b"b")(shard, "nobody", now))
        stage.lose()
        found.follow(stage.partition)
        assert await outcome_of(waiting) is ErrorCode.NOT_COORDINATOR
        assert found.drivers() == []
        with pytest.raises(KafkaError) as refused:
            found.execute(key, read(b"a"))
        assert refused.value.code is ErrorCode.NOT_COORDINATOR

        stage.lead()
        found.follow(stage.partition)
        await loaded(found, 0)
        assert await outcome_of(found.execute(key, read(b"a"))) == b"kept"
        found.close()

    run(story())


def test_the_same_epoch_keeps_the_shard_and_a_new_one_loads_it_again(tmp_path: Path) -> None:
    async def story() -> None:
        metadata = Metadata()
        metadata.add_topic()
        found, stage = coordinator(metadata), Stage(tmp_path)
        stage.lead()
        found.follow(stage.partition)
        first = found.driver(0)
        found.follow(stage.partition)  # a change of the in-sync replicas, say
        assert found.driver(0) is first
        stage.lead()
        found.follow(stage.partition)
        assert found.driver(0) is not first
        assert first is not None
        assert first.is_closed
        found.close()

    run(story())


def test_closing_ends_every_shard(tmp_path: Path) -> None:
    async def story() -> None:
        metadata = Metadata()
        metadata.add_topic()
        found, stage = coordinator(metadata), Stage(tmp_path)
        stage.lead()
        found.follow(stage.partition)
        (driver,) = found.drivers()
        found.close()
        assert driver.is_closed
        assert found.drivers() == []

    run(story())
