"""The driver of the metadata log: who leads, who follows, what is answered, and what an unsure store does to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from barnabas.cluster import records as r
from barnabas.cluster.brokers import SUPPORTED_FEATURES
from barnabas.cluster.delta import Delta
from barnabas.cluster.events import (
    BrokerHeartbeat,
    CreatedTopic,
    CreateTopics,
    DeleteTopics,
    Failure,
    FenceBroker,
    NewTopic,
    RegisterBroker,
    TopicReference,
)
from barnabas.cluster.image import Image
from barnabas.cluster.metadata_log import MetadataLog
from barnabas.coordination.embedded import EmbeddedStore
from barnabas.coordination.memory import Faults, MemoryMetadata, MemoryStore
from barnabas.coordination.store import Answer, Batch, Claim, MetadataStore, StoreUnavailable, Trimmed, Unknown
from barnabas.core.broker_config import BrokerConfig
from barnabas.core.clock import SystemClock
from barnabas.core.errors import ErrorCode, KafkaError
from tests.unit.cluster.clusters import check_consistency


async def started(store: MetadataStore, seed: int = 1, **options: Any) -> MetadataLog:
    await store.open()
    log = MetadataLog(store, SystemClock(), Random(seed), BrokerConfig({}), **options)
    await log.start()
    return log


async def register(log: MetadataLog, broker_id: int = 1, seed: int = 1) -> int:
    incarnation = Random(seed).randbytes(16)
    epoch = (await log.submit(RegisterBroker(broker_id, incarnation, (), SUPPORTED_FEATURES))).epoch
    await log.submit(BrokerHeartbeat(broker_id, epoch, log.image.index))
    return epoch


async def create(log: MetadataLog, name: str, partitions: int = 1) -> CreatedTopic:
    (result,) = await log.submit(CreateTopics((NewTopic(name, partitions),)))
    return result


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def run(main: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await main

    asyncio.run(bounded())


@pytest.fixture(params=["memory", "embedded"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[int], MetadataStore]:
    metadata = MemoryMetadata()

    def make(broker_id: int) -> MetadataStore:
        if request.param == "memory":
            return MemoryStore(metadata, broker_id)
        return EmbeddedStore(str(tmp_path / "metadata.db"), broker_id, SystemClock(), poll_s=0.005)

    return make


def test_a_restart_finds_everything_again(make_store: Callable[[int], MetadataStore]) -> None:
    async def main() -> None:
        store = make_store(1)
        log = await started(store)
        assert log.is_controller
        assert log.controller_id == 1
        await register(log)
        assert (await create(log, "orders", 3)).error is None
        before = log.image
        await log.stop()
        await store.close()

        again_store = make_store(1)
        again = await started(again_store)
        assert again.image == before
        assert again.controller_epoch == log.controller_epoch + 1
        await again.stop()
        await again_store.close()

    run(main())


def test_a_follower_sees_what_the_controller_does_and_takes_over_when_it_goes(
    make_store: Callable[[int], MetadataStore],
) -> None:
    async def main() -> None:
        store_one, store_two = make_store(1), make_store(2)
        one = await started(store_one)
        two = await started(store_two, seed=2)
        deltas: list[Delta] = []
        two.subscribe(lambda delta, image: deltas.append(delta))
        await register(one)
        await create(one, "orders", 2)
        await until(lambda: "orders" in two.image.topics)
        assert two.image == one.image
        assert [topic.name for delta in deltas for topic in delta.created] == ["orders"]
        assert two.controller_id == 1
        with pytest.raises(KafkaError, match="broker 2 is not the controller, broker 1 is") as caught:
            await create(two, "audit")
        assert caught.value.code is ErrorCode.NOT_CONTROLLER

        await one.stop()
        await store_one.close()
        await until(lambda: two.is_controller)
        assert two.controller_epoch == one.controller_epoch + 1
        await register(two, 2)
        assert (await create(two, "audit")).error is None
        await two.stop()
        await store_two.close()

    run(main())


def test_events_that_arrive_together_share_an_append_and_see_each_other() -> None:
    async def main() -> None:
        metadata = MemoryMetadata()
        log = await started(MemoryStore(metadata, 1))
        await register(log)
        index = log.image.index
        names = ["a", "b", "a", "c"]
        results = await asyncio.gather(*(create(log, name) for name in names))
        assert [result.error.code if result.error else None for result in results] == [
            None,
            None,
            ErrorCode.TOPIC_ALREADY_EXISTS,
            None,
        ]
        batches = metadata.read(index)
        assert isinstance(batches, list)
        assert len(batches) == 1
        await log.stop()

    run(main())


def test_what_is_published_is_published_before_it_is_answered() -> None:
    async def main() -> None:
        log = await started(MemoryStore(MemoryMetadata(), 1))
        await register(log)
        seen: list[Image] = []

        def fail(delta: Delta, image: Image) -> None:
            raise ValueError("a subscriber with a fault of its own")

        log.subscribe(fail)
        log.subscribe(lambda delta, image: seen.append(image))
        await create(log, "orders")
        assert "orders" in seen[-1].topics
        assert seen[-1] is log.image
        await log.stop()

    run(main())


class SleepyStore(MemoryStore):
    """Hears of nothing while `asleep` is set."""

    asleep = False

    async def watch(self) -> None:
        await super().watch()
        await until(lambda: not self.asleep)


def test_what_another_controller_wrote_in_ones_place_is_not_taken_for_ones_own() -> None:
    async def main() -> None:
        metadata = MemoryMetadata()
        store = SleepyStore(metadata, 1)
        log = await started(store)
        store.asleep = True
        await register(log)
        metadata.claim = Claim(metadata.claim.epoch + 1, 2)
        record = r.encode(r.TopicRecord(name="from-the-other", topic_id=b"t" * 16))
        metadata.append(metadata.claim.epoch, metadata.next_index, b"other", (record,))
        with pytest.raises(KafkaError, match="not the controller"):
            await create(log, "orders")
        assert not log.is_controller
        store.asleep = False
        await until(lambda: log.image.topics.keys() == {"from-the-other"})
        await log.stop()

    run(main())


def test_a_deposed_controller_refuses_what_it_could_not_append_and_follows() -> None:
    async def main() -> None:
        metadata = MemoryMetadata()
        log = await started(MemoryStore(metadata, 1))
        await register(log)
        metadata.claim = Claim(metadata.claim.epoch + 1, 2)  # another one wins, and nobody has told yet
        with pytest.raises(KafkaError, match="not the controller") as caught:
            await create(log, "orders")
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        record = r.encode(r.TopicRecord(name="from-the-other", topic_id=b"t" * 16))
        metadata.append(metadata.claim.epoch, metadata.next_index, b"other", (record,))
        await until(lambda: log.image.topics.keys() == {"from-the-other"})
        assert not log.is_controller
        assert log.controller_id == 2
        await log.stop()

    run(main())


def test_a_replaced_controller_that_does_not_know_it_reads_the_list_on_refresh() -> None:
    async def main() -> None:
        metadata = MemoryMetadata()
        store = SleepyStore(metadata, 1)
        log = await started(store)
        store.asleep = True
        metadata.claim = Claim(metadata.claim.epoch + 1, 2)
        record = r.encode(r.TopicRecord(name="from-the-other", topic_id=b"t" * 16))
        metadata.append(metadata.claim.epoch, metadata.next_index, b"other", (record,))
        beliefs = [log.is_controller]
        await log.refresh()
        beliefs.append(log.is_controller)
        assert beliefs == [True, False]
        assert log.image.topics.keys() == {"from-the-other"}
        store.asleep = False
        await log.stop()

    run(main())


def test_a_change_too_large_for_one_append_is_one_change_all_the_same() -> None:
    async def main() -> None:
        metadata = MemoryMetadata()
        log = await started(MemoryStore(metadata, 1))
        follower = await started(MemoryStore(metadata, 2), seed=2)
        await register(log)
        index = log.image.index
        sizes: set[int] = set()
        follower.subscribe(lambda delta, image: sizes.update(len(topic.partitions) for topic in image.topics.values()))
        assert (await create(log, "huge", 10_000)).error is None
        batches = metadata.read(index)
        assert isinstance(batches, list)
        assert len(batches) > 1
        assert log.image.index == metadata.next_index
        await until(lambda: follower.image.index == log.image.index)
        assert follower.image == log.image
        assert sizes == {10_000}
        assert (await create(log, "next")).error is None
        await log.stop()
        await follower.stop()

    run(main())


class HangingStore(MemoryStore):
    """Takes some appends, and then leaves the next one without an answer."""

    appends_left = 1_000

    async def append(self, epoch: int, index: int, append_id: bytes, records: Sequence[bytes]) -> Answer:
        self.appends_left -= 1
        if self.appends_left < 0:
            await asyncio.Event().wait()
        return await super().append(epoch, index, append_id, records)


def test_half_of_a_large_change_is_aborted_by_the_next_controller() -> None:
    async def main() -> None:
        metadata = MemoryMetadata()
        store = HangingStore(metadata, 1)
        log = await started(store)
        await register(log)
        follower = await started(MemoryStore(metadata, 2), seed=2)
        before = log.image
        store.appends_left = 1
        large = asyncio.create_task(create(log, "huge", 10_000))
        await until(lambda: store.appends_left < 0)
        assert metadata.next_index > before.index
        store.crash()
        await log.stop()
        with pytest.raises(KafkaError, match="not the controller"):
            await large
        await until(lambda: follower.is_controller)
        assert follower.image.topics == {}
        assert (await create(follower, "huge", 2)).error is None
        assert len(follower.image.topics["huge"].partitions) == 2
        fresh = await started(MemoryStore(metadata, 3), seed=3)
        assert fresh.image == follower.image
        await follower.stop()
        await fresh.stop()

    run(main())


def test_snapshots_keep_the_list_short_and_lose_nothing(make_store: Callable[[int], MetadataStore]) -> None:
    async def main() -> None:
        store, other = make_store(1), make_store(2)
        log = await started(store, snapshot_every=20)
        await register(log)
        await fill(log)
        assert isinstance(await store.read(0), Trimmed)
        fresh = await started(other, seed=2)
        assert fresh.image == log.image
        for one in (log, fresh):
            await one.stop()
        for session in (store, other):
            await session.close()

    run(main())


async def fill(log: MetadataLog) -> None:
    """Leaves the topics t25 to t29."""
    for number in range(30):
        await create(log, f"t{number}", 3)
        await log.submit(DeleteTopics((TopicReference(f"t{number - 5}"),)))


def test_a_follower_that_slept_jumps_over_a_snapshot_and_is_told_the_difference() -> None:
    async def main() -> None:
        metadata = MemoryMetadata()
        log = await started(MemoryStore(metadata, 1), snapshot_every=20)
        await register(log)
        await create(log, "t-early")
        store = SleepyStore(metadata, 2)
        follower = await started(store, seed=2)
        store.asleep = True
        deltas: list[Delta] = []
        follower.subscribe(lambda delta, image: deltas.append(delta))
        await log.submit(DeleteTopics((TopicReference("t-early"),)))
        await fill(log)
        assert isinstance(metadata.read(follower.image.index), Trimmed)
        store.asleep = False
        await until(lambda: follower.image.index == log.image.index)
        assert follower.image == log.image
        (delta,) = deltas
        assert [topic.name for topic in delta.deleted] == ["t-early"]
        assert {topic.name for topic in delta.created} == {f"t{number}" for number in range(25, 30)}
        await log.stop()
        await follower.stop()

    run(main())


class AwayStore(MemoryStore):
    """Cannot be reached while `away` is set."""

    away = False

    async def read(self, from_index: int) -> list[Batch] | Trimmed:
        if self.away:
            raise StoreUnavailable("nobody answers")
        return await super().read(from_index)


def test_a_store_that_is_away_at_the_start_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        store = AwayStore(MemoryMetadata(), 1)
        store.away = True
        await store.open()
        log = MetadataLog(store, SystemClock(), Random(1), BrokerConfig({}))
        start = asyncio.create_task(log.start())
        await asyncio.sleep(0.02)
        assert not start.done()
        store.away = False
        await start
        assert log.is_controller
        await log.stop()

    run(main())
    assert any(message.startswith("metadata store out of reach, trying again") for message in caplog.messages)


def test_an_event_whose_asker_has_gone_is_not_carried_out() -> None:
    async def main() -> None:
        log = await started(MemoryStore(MemoryMetadata(), 1))
        await register(log)
        asked = asyncio.create_task(create(log, "orders"))
        await asyncio.sleep(0)
        asked.cancel()
        assert (await create(log, "audit")).error is None
        assert log.image.topics.keys() == {"audit"}
        await log.stop()

    run(main())


def test_stopping_refuses_what_was_not_answered() -> None:
    async def main() -> None:
        store = MemoryStore(MemoryMetadata(), 1, Faults(Random(1), max_delay_s=0.2))
        log = await started(store)
        asked = asyncio.create_task(log.submit(RegisterBroker(1, b"i" * 16, (), SUPPORTED_FEATURES)))
        await asyncio.sleep(0.001)
        await log.stop()
        with pytest.raises(KafkaError, match="not the controller"):
            await asked
        with pytest.raises(KafkaError, match="not the controller"):
            await create(log, "orders")

    run(main())


def test_an_event_that_is_refused_as_a_whole_raises_where_it_was_submitted() -> None:
    async def main() -> None:
        log = await started(MemoryStore(MemoryMetadata(), 1))
        refused = log.submit(FenceBroker(7, 1))
        created = create(log, "orders")
        outcomes = await asyncio.gather(refused, created, return_exceptions=True)
        assert isinstance(outcomes[0], KafkaError)
        assert outcomes[0].code is ErrorCode.BROKER_ID_NOT_REGISTERED
        assert isinstance(outcomes[1], CreatedTopic)
        assert isinstance(outcomes[1].error, Failure), "there is no broker to place it on"
        await log.stop()

    run(main())


@pytest.mark.parametrize("seed", range(12))
def test_nothing_acknowledged_is_lost_whatever_the_store_answers_and_whoever_dies(seed: int) -> None:
    """Three brokers, unknown answers, late watches, crashes: every history is one list, and replies tell the truth."""

    async def main() -> None:
        rng = Random(seed)
        metadata = MemoryMetadata()
        faults = Faults(Random(seed + 1000), unknown=0.3, max_delay_s=0.002)
        stores: dict[int, MemoryStore] = {}
        nodes: dict[int, MetadataLog] = {}
        acknowledged: set[str] = set()
        refused: set[str] = set()

        async def boot(broker_id: int) -> None:
            stores[broker_id] = MemoryStore(metadata, broker_id, faults)
            nodes[broker_id] = await started(stores[broker_id], seed=rng.randrange(2**32), snapshot_every=15)

        async def work(name: str) -> None:
            leader = next((node for node in nodes.values() if node.is_controller), None)
            if leader is None:
                return
            try:
                if not leader.image.is_alive(leader.broker_id):
                    await register(leader, leader.broker_id, seed=rng.randrange(2**32))
                result = await create(leader, name)
                (refused if result.error else acknowledged).add(name)
            except KafkaError as error:
                if error.code is ErrorCode.NOT_CONTROLLER and leader.broker_id in nodes:
                    refused.add(name)

        for broker_id in (1, 2, 3):
            await boot(broker_id)
        for step in range(12):
            await asyncio.gather(*(work(f"t{step}-{number}") for number in range(3)))
            if rng.random() < 0.3:
                victim = rng.choice(list(nodes))
                busy = asyncio.create_task(work(f"t{step}-dying"))
                await asyncio.sleep(rng.uniform(0, 0.003))
                crashed = nodes.pop(victim)
                stores.pop(victim).crash()
                await crashed.stop()
                await busy
                await boot(victim)
        await until(lambda: any(node.is_controller for node in nodes.values()))
        await until(lambda: all(node.image.index == metadata.next_index for node in nodes.values()))
        images = [node.image for node in nodes.values()]
        assert images[0] == images[1] == images[2]
        check_consistency(images[0])
        assert acknowledged
        assert acknowledged <= images[0].topics.keys()
        assert not refused & images[0].topics.keys()
        fresh = await started(MemoryStore(metadata, 9), seed=9)
        assert fresh.image == images[0]
        for node in (*nodes.values(), fresh):
            await node.stop()

    run(main())


# Those who follow, and want to know when they have caught up


def test_a_follower_that_looks_again_has_what_was_answered_before(make_store: Callable[[int], MetadataStore]) -> None:
    async def story() -> None:
        stores = [make_store(1), make_store(2)]
        leader, follower = [await started(store) for store in stores]
        await register(leader)
        for n in range(5):
            await create(leader, f"t{n}")
            await follower.refresh()
            assert f"t{n}" in follower.image.topics
        await leader.refresh()
        await close(leader, follower, stores)

    run(story())


def test_who_expects_a_change_is_told_when_it_is_there(make_store: Callable[[int], MetadataStore]) -> None:
    async def story() -> None:
        stores = [make_store(1), make_store(2)]
        leader, follower = [await started(store) for store in stores]
        await register(leader)
        expecting = asyncio.create_task(follower.until(lambda image: "wanted" in image.topics))
        await create(leader, "other")
        await follower.refresh()
        assert not expecting.done()
        await create(leader, "wanted")
        await expecting
        await follower.until(lambda image: "wanted" in image.topics)
        await close(leader, follower, stores)

    run(story())


def test_the_controller_is_watched_through_its_change(make_store: Callable[[int], MetadataStore]) -> None:
    async def story() -> None:
        stores = [make_store(1), make_store(2)]
        first, second = [await started(store) for store in stores]
        told: list[tuple[int, bool]] = []
        second.watch_controller(lambda: told.append((second.controller_id, second.is_controller)))
        await first.stop()
        await stores[0].close()
        await until(lambda: second.is_controller)
        assert told[-1] == (2, True)
        await second.stop()
        await stores[1].close()

    run(story())


def test_a_preview_changes_nothing_and_is_the_controllers_alone(make_store: Callable[[int], MetadataStore]) -> None:
    async def story() -> None:
        stores = [make_store(1), make_store(2)]
        leader, follower = [await started(store) for store in stores]
        epoch = await register(leader)
        index = leader.image.index
        state, must_write = leader.preview(BrokerHeartbeat(1, epoch, index))
        assert (state.is_fenced, must_write) == (False, False)
        _, must_write = leader.preview(FenceBroker(1, epoch))
        assert (must_write, leader.image.index) == (True, index)
        with pytest.raises(KafkaError) as caught:
            follower.preview(FenceBroker(1, epoch))
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        await close(leader, follower, stores)

    run(story())


async def close(leader: MetadataLog, follower: MetadataLog, stores: Sequence[MetadataStore]) -> None:
    for log in (follower, leader):
        await log.stop()
    for store in stores:
        await store.close()


class LockedStore(MemoryStore):
    """Takes no appends while it is locked."""

    is_locked = False

    async def append(self, epoch: int, index: int, append_id: bytes, records: Sequence[bytes]) -> Answer:
        if self.is_locked:
            return Unknown("somebody has locked it")
        return await super().append(epoch, index, append_id, records)


def test_why_nothing_is_written_is_known_until_something_is() -> None:
    async def main() -> None:
        store = LockedStore(MemoryMetadata(), 1)
        log = await started(store)
        await register(log)
        assert log.trouble == ""
        store.is_locked = True
        asked = asyncio.create_task(create(log, "orders"))
        await until(lambda: log.trouble == "somebody has locked it")
        assert not asked.done()
        store.is_locked = False
        assert (await asked).error is None
        assert log.trouble == ""
        await log.stop()

    run(main())


def test_unclean_elections_are_counted_once_they_are_in_the_list() -> None:
    async def main() -> None:
        store = LockedStore(MemoryMetadata(), 1)
        log = await started(store)
        await register(log)
        await create(log, "orders", partitions=3)
        store.is_locked = True
        asked = asyncio.create_task(register(log, seed=2))  # it does not know its epoch: an unclean restart
        await until(lambda: log.trouble != "")
        assert log.unclean_elections == 0
        store.is_locked = False
        await asked
        assert log.unclean_elections == 3
        await log.stop()

    run(main())
