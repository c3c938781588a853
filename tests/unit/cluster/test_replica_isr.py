"""In-sync replicas over real sockets: who lags leaves, who catches up returns, and what clients are told meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from barnabas.cluster.isr import Lag
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.peers import kafka_tool
from tests.unit.cluster.replica_cluster import TOPIC, ReplicaCluster, eventually, placed, running
from tests.unit.storage.storage_helpers import batch

SOON = Lag(time_ms=300)


async def silence(cluster: ReplicaCluster, broker_id: int) -> None:
    """The broker copies nothing any more."""
    broker = cluster.brokers[broker_id]
    broker.replicas.fetchers = None
    await broker.fetchers.close()


def speak(cluster: ReplicaCluster, broker_id: int) -> None:
    broker = cluster.brokers[broker_id]
    broker.replicas.fetchers = broker.fetchers
    broker.fetchers.follow(broker.partition())


async def produced(cluster: ReplicaCluster, leader: int, timeout_ms: int = 5000) -> ErrorCode:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(0, batch())])],
    )
    async with cluster.client(leader) as client:
        response = await client.request(request, 9)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


def test_a_silent_follower_leaves_and_comes_back_when_it_speaks_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, lag=SOON) as cluster:
            await cluster.create(placed(1, 2, 3))
            await cluster.produce(1, b"a")
            await silence(cluster, 3)
            await cluster.produce(1, b"b")  # waits until the follower has left
            assert cluster.registration().isr == (1, 2)
            assert cluster.brokers[3].log.log_end_offset == 1
            speak(cluster, 3)
            await eventually(lambda: cluster.registration().isr == (1, 2, 3))
            assert cluster.brokers[3].log.log_end_offset == 2

    asyncio.run(scenario())


def test_too_few_in_sync_replicas_are_told_before_and_after_the_append(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, 2, lag=SOON, min_insync_replicas=2) as cluster:
            await cluster.create(placed(1, 2))
            assert await produced(cluster, 1) is ErrorCode.NONE
            await silence(cluster, 2)
            assert await produced(cluster, 1) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            assert await produced(cluster, 1) is ErrorCode.NOT_ENOUGH_REPLICAS
            assert cluster.brokers[1].log.high_watermark == 1
            speak(cluster, 2)
            await eventually(lambda: cluster.registration().isr == (1, 2))
            assert await produced(cluster, 1) is ErrorCode.NONE
            assert cluster.brokers[1].log.high_watermark == 3

    asyncio.run(scenario())


def test_an_acknowledgement_that_does_not_come_in_time_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, 2) as cluster:
            await cluster.create(placed(1, 2))
            await cluster.produce(1, b"a")
            await silence(cluster, 2)
            assert await produced(cluster, 1, timeout_ms=50) is ErrorCode.REQUEST_TIMED_OUT

    asyncio.run(scenario())


def test_while_the_controller_is_silent_nothing_is_committed_without_the_follower(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, 2, lag=SOON) as cluster:
            await cluster.create(placed(1, 2))
            await cluster.produce(1, b"a")
            cluster.is_silent = True
            await silence(cluster, 2)
            cluster.append(1, b"b", acks=1)
            await eventually(lambda: bool(cluster.asked))
            await asyncio.sleep(0.4)
            assert len(cluster.asked) == 1
            assert cluster.brokers[1].log.high_watermark == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("version", "code"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (8, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
def test_a_new_leader_does_not_tell_the_end_before_it_knows_it(tmp_path: Path, version: int, code: ErrorCode) -> None:
    async def latest(cluster: ReplicaCluster) -> tuple[ErrorCode, int]:
        asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
        async with cluster.client(2) as client:
            request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(TOPIC, [asked])])
            (found,) = (await client.request(request, version)).topics[0].partitions
        return ErrorCode(found.error_code), found.offset

    async def scenario() -> None:
        async with running(tmp_path) as cluster:
            await cluster.create(placed(1, 2, 3))
            await cluster.produce(1, b"a", b"b")
            await eventually(lambda: cluster.brokers[2].log.high_watermark == 2)
            for broker_id in (2, 3):
                await silence(cluster, broker_id)
            cluster.brokers[2].log.set_high_watermark(1)  # as if the leader had died before it told
            await cluster.elect(2, (2, 3))
            assert await latest(cluster) == (code, -1)
            speak(cluster, 3)
            await eventually(lambda: cluster.brokers[2].log.high_watermark == 2)
            assert await latest(cluster) == (ErrorCode.NONE, 2)

    asyncio.run(scenario())


def test_records_are_deleted_on_all_in_sync_replicas_before_the_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as cluster:
            await cluster.create(placed(1, 2, 3))
            await cluster.produce(1, *[b"value"] * 5)

            async def delete(offset: int, timeout_ms: int) -> tuple[ErrorCode, int]:
                asked = DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, offset)])
                async with cluster.client(1) as client:
                    response = await client.request(DeleteRecordsRequest([asked], timeout_ms))
                (result,) = response.topics[0].partitions
                return ErrorCode(result.error_code), result.low_watermark

            assert await delete(3, 5000) == (ErrorCode.NONE, 3)
            assert [broker.log.log_start_offset for broker in cluster.brokers.values()] == [3, 3, 3]
            await silence(cluster, 2)
            assert await delete(-1, 100) == (ErrorCode.REQUEST_TIMED_OUT, -1)

    asyncio.run(scenario())


@pytest.mark.peers
def test_kafka_reads_a_followers_segments(tmp_path: Path) -> None:
    async def scenario() -> list[Path]:
        async with running(tmp_path, 2, segment_bytes=2000, index_interval_bytes=100) as cluster:
            await cluster.create(placed(1, 2))
            for number in range(60):
                await cluster.produce(1, b"%d" % number * 20)
        return sorted((tmp_path / "2" / "topic-0").glob("*.log"))

    segments = asyncio.run(scenario())
    assert len(segments) > 1
    files = ",".join(str(path) for segment in segments for path in (segment, segment.with_suffix(".index")))
    dumped = kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", files)
    assert dumped.count("baseOffset: ") == 60
    assert "isvalid: false" not in dumped
    assert "Mismatches" not in dumped
