"""A coordinator follows the leadership of its topic's partitions, and makes the topic when it is first needed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.coordinators import Coordinator
from barnabas.coordinator.outcome import Now, Outcome, Token
from barnabas.coordinator.placement import partition_of
from barnabas.core.errors import ErrorCode, KafkaError
from tests.unit.broker.coordinator_stage import PARTITIONS, SETTINGS, TOPIC, Metadata, coordinator, key_of
from tests.unit.broker.shards import OTHER, Notes, Stage, outcome_of, read, run, write

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


async def code_of(found: Coordinator[Notes], key: str) -> Any:
    return await outcome_of(found.execute(key, read(b"a")))


def test_a_key_of_another_brokers_partition_is_not_coordinated_here() -> None:
    async def story() -> None:
        metadata = Metadata()
        metadata.add_topic(leader=OTHER)
        assert await code_of(coordinator(metadata), "orders") is ErrorCode.NOT_COORDINATOR

    run(story())


def test_no_topic_is_not_coordinator() -> None:
    async def story() -> None:
        assert await code_of(coordinator(Metadata()), "orders") is ErrorCode.NOT_COORDINATOR

    run(story())


# leadership


def test_a_shard_comes_and_goes_with_the_leadership(tmp_path: Path) -> None:
    async def story() -> None:
        metadata = Metadata()
        metadata.add_topic()
        found, stage, key = coordinator(metadata), Stage(tmp_path), key_of(0)
        stage.lead()
        found.follow(stage.partition)
        assert await outcome_of(found.execute(key, write(b"a", b"kept"))) == "wrote a"

        waiting = asyncio.ensure_future(found.execute(key, write_without_reply))
        await asyncio.sleep(0)
        stage.lose()
        metadata.add_topic(leader=OTHER)
        found.follow(stage.partition)
        assert await outcome_of(waiting) is ErrorCode.NOT_COORDINATOR
        assert found.drivers() == []
        assert await code_of(found, key) is ErrorCode.NOT_COORDINATOR

        stage.lead()
        metadata.add_topic()
        found.follow(stage.partition)
        assert await outcome_of(found.execute(key, read(b"a"))) == b"kept"
        found.close()

    run(story())


def write_without_reply(shard: Notes, token: Token, now: Now) -> Outcome:
    return write(b"b")(shard, "another token", now)


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
