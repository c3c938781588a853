"""Requests that reach a coordinator before its shard serves wait; NOT_COORDINATOR means that leadership moved."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker import coordinator_runtime, coordinators
from barnabas.broker.coordinators import Coordinator
from barnabas.broker.dispatch import Later
from barnabas.core.errors import ErrorCode
from tests.unit.broker.coordinator_stage import Metadata, Replicas, coordinator, key_of
from tests.unit.broker.shards import OTHER, HeldExecutor, Notes, Stage, outcome_of, read, run
from tests.unit.storage.storage_helpers import append

KEY = key_of(0)
PAUSE_S = 0.01  # in which what must wait would have been answered


class Waiting:
    """A coordinator whose log holds a note, and everything that can hold its shard back."""

    def __init__(self, directory: Path) -> None:
        self.metadata = Metadata()
        self.replicas = Replicas()
        self.executor = HeldExecutor()
        self.coordinator: Coordinator[Notes] = coordinator(self.metadata, self.replicas, self.executor)
        self.stage = Stage(directory)
        self.stage.lead()
        append(self.stage.log, b"value", key=b"a")

    def lead(self) -> None:
        self.coordinator.follow(self.stage.partition)

    def lose(self) -> None:
        self.metadata.add_topic(leader=OTHER)
        self.stage.lose()
        self.coordinator.follow(self.stage.partition)

    def ask(self, way: str) -> asyncio.Future[Any]:
        """A request, in either of the ways that handlers have."""
        if way == "execute":
            return asyncio.ensure_future(self.coordinator.execute(KEY, read(b"a")))
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer = self.coordinator.answer(KEY, read(b"a"), lambda error: error.code)
        assert isinstance(answer, Later)
        answer.then(answered.set_result)
        return answered


either_way = pytest.mark.parametrize("way", ["execute", "answer"])


@either_way
def test_waits_until_the_shard_is_loaded(tmp_path: Path, way: str) -> None:
    async def story() -> None:
        world = Waiting(tmp_path)
        world.metadata.add_topic()
        world.executor.may_go_on.clear()
        world.lead()
        waiting = world.ask(way)
        await asyncio.sleep(PAUSE_S)
        assert not waiting.done()
        world.executor.may_go_on.set()
        assert await outcome_of(waiting) == b"value"
        world.coordinator.close()

    run(story())


@either_way
def test_waits_until_the_partition_is_created(tmp_path: Path, way: str) -> None:
    async def story() -> None:
        world = Waiting(tmp_path)
        world.metadata.add_topic()  # FindCoordinator names this broker from now on
        world.replicas.applied.clear()
        waiting = world.ask(way)
        await asyncio.sleep(PAUSE_S)
        assert not waiting.done()
        world.lead()
        world.replicas.applied.set()
        assert await outcome_of(waiting) == b"value"
        world.coordinator.close()

    run(story())


@either_way
def test_reads_metadata_that_another_broker_has_read_before(tmp_path: Path, way: str) -> None:
    async def story() -> None:
        world = Waiting(tmp_path)
        world.metadata.arriving = world.metadata.add_topic
        world.lead()
        assert await outcome_of(world.ask(way)) == b"value"
        world.coordinator.close()

    run(story())


@either_way
def test_leadership_lost_while_waiting_is_not_coordinator(tmp_path: Path, way: str) -> None:
    async def story() -> None:
        world = Waiting(tmp_path)
        world.metadata.add_topic()
        world.executor.may_go_on.clear()
        world.lead()
        waiting = world.ask(way)
        await asyncio.sleep(PAUSE_S)
        world.lose()
        assert await outcome_of(waiting) is ErrorCode.NOT_COORDINATOR
        world.coordinator.close()

    run(story())


@either_way
def test_leadership_renewed_while_waiting_is_served_in_the_new_epoch(tmp_path: Path, way: str) -> None:
    async def story() -> None:
        world = Waiting(tmp_path)
        world.metadata.add_topic()
        world.executor.may_go_on.clear()
        world.lead()
        waiting = world.ask(way)
        await asyncio.sleep(PAUSE_S)
        world.stage.lead()
        world.coordinator.follow(world.stage.partition)
        world.executor.may_go_on.set()
        assert await outcome_of(waiting) == b"value"
        world.coordinator.close()

    run(story())


@either_way
def test_long_load_answers_load_in_progress(tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_runtime, "LOAD_PATIENCE_S", PAUSE_S)

    async def story() -> None:
        world = Waiting(tmp_path)
        world.metadata.add_topic()
        world.executor.may_go_on.clear()
        world.lead()
        assert await outcome_of(world.ask(way)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        world.coordinator.close()

    run(story())


@either_way
def test_slow_creation_answers_load_in_progress(tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "LOAD_PATIENCE_S", PAUSE_S)

    async def story() -> None:
        world = Waiting(tmp_path)
        world.metadata.add_topic()
        world.replicas.applied.clear()
        assert await outcome_of(world.ask(way)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    run(story())


@either_way
def test_store_that_does_not_answer_in_time_proves_nothing(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinators, "LOAD_PATIENCE_S", PAUSE_S)

    async def story() -> None:
        world = Waiting(tmp_path)
        monkeypatch.setattr(world.metadata, "refresh", asyncio.Event().wait)
        assert await outcome_of(world.ask(way)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    run(story())


@either_way
def test_partition_that_cannot_be_opened_is_not_available(tmp_path: Path, way: str) -> None:
    async def story() -> None:
        world = Waiting(tmp_path)
        world.metadata.add_topic()
        assert await outcome_of(world.ask(way)) is ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(story())


@either_way
def test_store_out_of_reach_is_not_waited_for(tmp_path: Path, way: str) -> None:
    async def story() -> None:
        world = Waiting(tmp_path)
        world.metadata.trouble = "out of reach"
        world.metadata.arriving = world.metadata.add_topic  # which would be seen if the store were asked
        assert await outcome_of(world.ask(way)) is ErrorCode.NOT_COORDINATOR

    run(story())


def test_abandoned_request_is_not_run(tmp_path: Path) -> None:
    async def story() -> None:
        world = Waiting(tmp_path)
        world.metadata.add_topic()
        world.executor.may_go_on.clear()
        world.lead()
        answer = world.coordinator.answer(KEY, read(b"a"), lambda error: error.code)
        assert isinstance(answer, Later)
        assert answer.on_abandoned is not None
        answer.on_abandoned()
        served = world.ask("execute")
        world.executor.may_go_on.set()
        assert await outcome_of(served) == b"value"
        assert answer.response is None
        world.coordinator.close()

    run(story())
