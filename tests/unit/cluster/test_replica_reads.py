"""Consumers on followers (KIP-392): whom the leader sends where, and what a follower answers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from barnabas.cluster.isr import Lag
from barnabas.core.errors import ErrorCode
from barnabas.records.control import ControlType, EndMarker
from barnabas.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from tests.unit.cluster.replica_cluster import TOPIC, ReplicaCluster, eventually, placed, running
from tests.unit.cluster.test_replica_isr import silence
from tests.unit.storage.storage_helpers import NOW_MS, TOPIC_ID

RACKS = ("a", "b", "c")
FIRST_WITH_RACK, BY_NAME = 11, 12


async def fetch(
    cluster: ReplicaCluster, broker: int, offset: int, *, rack: str = "", version: int = 17, **fields: Any
) -> PartitionData:
    asked = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=fields.pop("max_wait_ms", 0),
        min_bytes=1,
        topics=[FetchTopic(TOPIC, TOPIC_ID, [asked])],
        rack_id=rack,
        **fields,
    )
    async with cluster.client(broker) as client:
        response = await client.request(request, version)
    (topic,) = response.responses
    data: PartitionData = topic.partitions[0]
    return data


async def committed_everywhere(cluster: ReplicaCluster, offset: int) -> None:
    await eventually(lambda: all(broker.log.high_watermark == offset for broker in cluster.brokers.values()))


async def preferred(cluster: ReplicaCluster, rack: str, offset: int = 0, **fields: Any) -> int:
    data = await fetch(cluster, 1, offset, rack=rack, **fields)
    assert data.error_code == ErrorCode.NONE
    assert bool(data.records) == (data.preferred_read_replica < 0)  # it is there, or here
    assert data.high_watermark == 1
    return int(data.preferred_read_replica)


def test_a_leader_sends_consumers_to_the_replica_in_their_rack(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, reads_by_rack=True, racks=RACKS) as cluster:
            await cluster.create(placed(1, 2, 3))
            await cluster.produce(1)
            found = {rack: await preferred(cluster, rack) for rack in (*RACKS, "elsewhere", "")}
            assert found == {"a": -1, "b": 2, "c": 3, "elsewhere": -1, "": -1}
            assert await preferred(cluster, "b", version=FIRST_WITH_RACK) == 2

    asyncio.run(scenario())


def test_without_a_selector_the_leader_serves_all(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, racks=RACKS) as cluster:
            await cluster.create(placed(1, 2, 3))
            await cluster.produce(1)
            assert await preferred(cluster, "b") == -1

    asyncio.run(scenario())


def test_consumers_are_not_sent_to_who_is_fenced_or_not_in_sync(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, reads_by_rack=True, racks=RACKS) as cluster:
            await cluster.create(placed(1, 2, 3))
            await cluster.produce(1)
            await silence(cluster, 3)
            await cluster.change(isr=(1, 2), partition_epoch=1)
            assert await preferred(cluster, "c") == -1
            brokers = dict(cluster.image.brokers)
            brokers[2] = replace(brokers[2], fenced=True)
            await cluster.tell(replace(cluster.image, brokers=MappingProxyType(brokers)))
            assert await preferred(cluster, "b") == -1

    asyncio.run(scenario())


def test_of_several_in_the_rack_the_one_that_is_furthest_is_chosen(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, reads_by_rack=True, racks=("a", "b", "b"), lag=Lag(60_000)) as cluster:
            await cluster.create(placed(1, 2, 3))
            await cluster.produce(1)
            await silence(cluster, 3)
            cluster.append(1, acks=1)
            await eventually(lambda: cluster.brokers[2].log.log_end_offset == 2)
            await eventually(lambda: in_sync_end(cluster, 2) == 2)
            assert await preferred(cluster, "b") == 2

    asyncio.run(scenario())


def in_sync_end(cluster: ReplicaCluster, follower: int) -> int:
    in_sync = cluster.brokers[1].partition().in_sync
    assert in_sync is not None
    return in_sync.followers[follower].log_end_offset


def test_a_session_is_told_of_the_nearer_replica(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, reads_by_rack=True, racks=RACKS) as cluster:
            await cluster.create(placed(1, 2, 3))
            await cluster.produce(1)
            asked = FetchTopic(TOPIC, TOPIC_ID, [FetchPartition(0, fetch_offset=1, partition_max_bytes=1 << 20)])
            async with cluster.client(1) as client:
                opening = FetchRequest(max_wait_ms=0, session_epoch=0, topics=[asked])
                session = (await client.request(opening)).session_id
                again = FetchRequest(max_wait_ms=60_000, min_bytes=1, session_id=session, session_epoch=1, rack_id="b")
                response = await client.request(again)
            (topic,) = response.responses
            assert topic.partitions[0].preferred_read_replica == 2

    asyncio.run(scenario())


def test_a_follower_serves_what_it_knows_to_be_committed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, reads_by_rack=True) as cluster:
            await cluster.create(placed(1, 2, 3))
            await cluster.produce(1)
            await committed_everywhere(cluster, 1)
            leaders, followers = [await fetch(cluster, broker, 0) for broker in (1, 2)]
            assert bytes(followers.records or b"") == bytes(leaders.records or b"") != b""
            assert (followers.high_watermark, followers.last_stable_offset, followers.log_start_offset) == (1, 1, 0)

    asyncio.run(scenario())


def test_a_follower_wakes_its_readers_when_more_is_committed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, reads_by_rack=True) as cluster:
            await cluster.create(placed(1, 2, 3))
            await cluster.produce(1)
            await committed_everywhere(cluster, 1)
            waiting = asyncio.ensure_future(fetch(cluster, 3, 1, max_wait_ms=60_000))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            await cluster.produce(1)
            data = await asyncio.wait_for(waiting, 10)
            assert data.records

    asyncio.run(scenario())


def test_a_follower_tells_which_offsets_it_lacks_and_which_are_gone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, reads_by_rack=True, lag=Lag(60_000)) as cluster:
            await cluster.create(placed(1, 2, 3))
            await cluster.produce(1)
            await cluster.produce(1)
            await committed_everywhere(cluster, 2)
            follower = cluster.brokers[3].partition()
            follower.log.advance_log_start_offset(1)
            await silence(cluster, 3)
            codes = [(await fetch(cluster, 3, offset)).error_code for offset in (0, 1, 2, 3)]
            assert codes == [ErrorCode.OFFSET_OUT_OF_RANGE, 0, 0, ErrorCode.OFFSET_NOT_AVAILABLE]
            assert (await fetch(cluster, 1, 3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    asyncio.run(scenario())


def test_what_a_follower_does_not_know_to_be_committed_is_waited_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, reads_by_rack=True, lag=Lag(60_000)) as cluster:
            await cluster.create(placed(1, 2, 3))
            await silence(cluster, 3)
            cluster.append(1, acks=1)
            await eventually(lambda: cluster.brokers[2].log.log_end_offset == 1)
            data = await fetch(cluster, 2, 1)
            assert (data.error_code, data.high_watermark, bytes(data.records or b"")) == (0, 0, b"")

    asyncio.run(scenario())


def test_consumers_that_know_of_no_racks_are_served_by_the_leader_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, reads_by_rack=True, racks=RACKS) as cluster:
            await cluster.create(placed(1, 2, 3))
            await cluster.produce(1)
            data = await fetch(cluster, 2, 0, version=FIRST_WITH_RACK - 1)
            assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("epoch", "code"), [(0, ErrorCode.FENCED_LEADER_EPOCH), (1, ErrorCode.NONE), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_a_follower_checks_what_leader_epoch_its_reader_knows(tmp_path: Path, epoch: int, code: ErrorCode) -> None:
    async def scenario() -> None:
        async with running(tmp_path, reads_by_rack=True) as cluster:
            await cluster.create(placed(1, 2, 3, epoch=1))
            asked = FetchPartition(0, current_leader_epoch=epoch, partition_max_bytes=1 << 20)
            request = FetchRequest(max_wait_ms=0, topics=[FetchTopic(TOPIC, TOPIC_ID, [asked])])
            async with cluster.client(3) as client:
                (topic,) = (await client.request(request)).responses
            assert topic.partitions[0].error_code == code

    asyncio.run(scenario())


def test_a_follower_knows_which_transactions_were_aborted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, reads_by_rack=True) as cluster:
            await cluster.create(placed(1, 2, 3))
            await cluster.produce(1, producer=(7, 0, 0), transactional=True)
            await committed_everywhere(cluster, 1)
            open_ = await fetch(cluster, 2, 0, isolation_level=1)
            assert (open_.last_stable_offset, bytes(open_.records or b"")) == (0, b"")
            cluster.brokers[1].partition().append_end_marker(EndMarker(ControlType.ABORT, 0), 7, 0, 0, NOW_MS)
            await committed_everywhere(cluster, 2)
            ended = await fetch(cluster, 2, 0, isolation_level=1)
            assert (ended.last_stable_offset, bool(ended.records)) == (2, True)
            assert [(each.producer_id, each.first_offset) for each in ended.aborted_transactions or ()] == [(7, 0)]

    asyncio.run(scenario())


def test_who_asks_where_a_partition_is_not_learns_to_look_elsewhere(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as cluster:
            await cluster.create(placed(1, 2))
            assert (await fetch(cluster, 3, 0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    asyncio.run(scenario())
