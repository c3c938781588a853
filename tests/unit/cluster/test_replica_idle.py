"""Partitions in which nothing happens: they cost nothing, and are found again when something does."""

from __future__ import annotations

import asyncio
from pathlib import Path

from barnabas.cluster.copy_session import FetchSettings
from barnabas.cluster.isr import Lag
from barnabas.wire.messages.k21_delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.unit.cluster.replica_cluster import (
    TOPIC,
    ReplicaBroker,
    ReplicaCluster,
    eventually,
    log_bytes,
    placed,
    running,
)
from tests.unit.cluster.test_replica_isr import silence, speak

PARTITIONS = 150
OFTEN = FetchSettings(wait_max_ms=20, backoff_ms=100)
MOST_BYTES_OF_AN_IDLE_FETCH = 100


def due(broker: ReplicaBroker) -> int:
    """How many partitions the sessions of other brokers look at with every request."""
    copied = [session.copied for session in broker.fetch_sessions._sessions.values()]
    return sum(len(each.due) for each in copied if each is not None)


async def at_rest(cluster: ReplicaCluster) -> None:
    await eventually(lambda: not any(due(broker) for broker in cluster.brokers.values()))


async def create_many(cluster: ReplicaCluster) -> None:
    await cluster.create(*(placed(*(1 + (index + step) % 3 for step in range(3))) for index in range(PARTITIONS)))
    for index in range(0, PARTITIONS, 10):
        await cluster.produce(1 + index % 3, index=index)
    await at_rest(cluster)


def test_an_idle_fetch_is_short_and_looks_at_no_partition_however_many_there_are(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, settings=OFTEN) as cluster:
            await create_many(cluster)
            leader = cluster.brokers[1]
            count, traffic = leader.fetches, leader.server.traffic
            bytes_in, bytes_out = traffic.bytes_in, traffic.copied_bytes_out
            await eventually(lambda: leader.fetches >= count + 10)
            more = leader.fetches - count
            assert traffic.bytes_in - bytes_in < (more + 2) * MOST_BYTES_OF_AN_IDLE_FETCH
            assert traffic.copied_bytes_out - bytes_out < (more + 2) * MOST_BYTES_OF_AN_IDLE_FETCH
            assert due(leader) == 0

    asyncio.run(scenario())


def test_a_partition_at_rest_is_copied_as_soon_as_it_has_something(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, settings=FetchSettings(wait_max_ms=5000)) as cluster:
            await cluster.create(*(placed(1, 2, 3) for _ in range(10)))
            for index in range(10):
                await cluster.produce(1, index=index)
            started = asyncio.get_running_loop().time()
            for _ in range(3):
                for index in range(10):
                    await cluster.produce(1, b"more", index=index)
            assert asyncio.get_running_loop().time() - started < 5
            for index in range(10):
                assert len({log_bytes(broker.partition(index).log) for broker in cluster.brokers.values()}) == 1

    asyncio.run(scenario())


def test_a_follower_at_rest_that_was_taken_out_of_the_isr_comes_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, settings=OFTEN) as cluster:
            await cluster.create(placed(1, 2, 3))
            await cluster.produce(1)
            await at_rest(cluster)
            await cluster.change(isr=(1,), partition_epoch=cluster.registration().partition_epoch + 1)
            await eventually(lambda: set(cluster.registration().isr) == {1, 2, 3})

    asyncio.run(scenario())


def test_a_follower_that_rested_longer_than_it_may_lag_does_not_lag(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, settings=OFTEN, lag=Lag(time_ms=400)) as cluster:
            await cluster.create(placed(1, 2, 3))
            await cluster.produce(1)
            await at_rest(cluster)
            await asyncio.sleep(0.6)
            partition = cluster.brokers[1].partition()
            cluster.append(1, acks=1)
            partition.drop_lagging(int(cluster.brokers[1].clock.monotonic() * 1000))
            assert cluster.asked == []
            await cluster.produce(1)
            assert set(cluster.registration().isr) == {1, 2, 3}

    asyncio.run(scenario())


def test_a_follower_that_went_silent_while_all_was_at_rest_lags_from_then_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, settings=OFTEN, lag=Lag(time_ms=400)) as cluster:
            await cluster.create(placed(1, 2, 3))
            await cluster.produce(1)
            await at_rest(cluster)
            await silence(cluster, 3)
            await asyncio.sleep(0.6)
            cluster.append(1, acks=1)
            cluster.brokers[1].partition().drop_lagging(int(cluster.brokers[1].clock.monotonic() * 1000))
            await eventually(lambda: cluster.registration().isr == (1, 2))
            speak(cluster, 3)
            await eventually(lambda: set(cluster.registration().isr) == {1, 2, 3})

    asyncio.run(scenario())


def test_records_are_deleted_where_all_is_at_rest(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, settings=FetchSettings(wait_max_ms=60_000)) as cluster:
            await cluster.create(placed(1, 2, 3))
            await cluster.produce(1, b"a", b"b")
            asked = DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, 2)])
            async with cluster.client(1) as client:
                response = await client.request(DeleteRecordsRequest([asked], 20_000))
            (result,) = response.topics[0].partitions
            assert (result.error_code, result.low_watermark) == (0, 2)
            assert {broker.log.log_start_offset for broker in cluster.brokers.values()} == {2}

    asyncio.run(scenario())


def test_a_new_session_of_a_replica_takes_the_place_of_its_last_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, 2, settings=OFTEN) as cluster:
            await cluster.create(placed(1, 2))
            await cluster.produce(1)
            for _ in range(5):
                cluster.brokers[2].fetchers._fetchers[1, 0][0]._disconnect()
                await cluster.produce(1)
            partition = cluster.brokers[1].partition()
            await at_rest(cluster)
            assert len(cluster.brokers[1].fetch_sessions) == 1
            assert len(partition._tail_watchers) == 1

    asyncio.run(scenario())


def test_several_fetchers_share_the_partitions_of_a_leader(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, 2, settings=OFTEN) as cluster:
            cluster.fetchers_per_leader = 3
            await cluster.create(*(placed(1, 2) for _ in range(12)))
            for index in range(12):
                await cluster.produce(1, index=index)
            assert len(cluster.brokers[1].fetch_sessions) == 3
            assert len(cluster.brokers[2].fetchers._fetchers) == 3
            cluster.fetchers_per_leader = 2
            cluster.brokers[2].fetchers.share_out(cluster.brokers[2].replicas.partitions.values())
            assert len(cluster.brokers[2].fetchers._fetchers) == 2
            for index in range(12):
                await cluster.produce(1, index=index)

    asyncio.run(scenario())


def test_a_new_replica_catches_up_while_records_come(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, settings=OFTEN) as cluster:
            await cluster.create(placed(1, 2))
            for number in range(100):
                await cluster.produce(1, b"%d" % number * 1000)
            writing = True

            async def write() -> None:
                while writing:
                    await cluster.produce(1, bytes(2000))

            load = asyncio.ensure_future(write())
            await cluster.change(replicas=(1, 2, 3), partition_epoch=1)
            await eventually(lambda: set(cluster.registration().isr) == {1, 2, 3})
            writing = False
            await load
            ends = {broker.log.log_end_offset for broker in cluster.brokers.values()}
            assert len(ends) == 1
            assert len({log_bytes(broker.log) for broker in cluster.brokers.values()}) == 1

    asyncio.run(scenario())


def test_partitions_that_are_added_one_after_the_other_do_not_cost_a_connection_each(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, 2, settings=FetchSettings(wait_max_ms=60_000)) as cluster:
            await cluster.create(placed(1, 2))
            await cluster.produce(1)
            accepted = cluster.brokers[1].server.traffic.accepted
            for count in range(2, 20):
                await cluster.create(*(placed(1, 2) for _ in range(count)))
                await cluster.produce(1, index=count - 1)  # which waits for the follower
                await asyncio.sleep(0.03)
            assert cluster.brokers[1].server.traffic.accepted - accepted <= 3

    asyncio.run(scenario())
