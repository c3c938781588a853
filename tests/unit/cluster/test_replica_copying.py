"""Followers copy their leader: over real sockets, byte for byte, and cut off what it does not have."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from barnabas.cluster.copy_session import FetchSettings, key_of
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.storage.checkpoints import LOG_START_OFFSETS, read_offsets
from barnabas.storage.disk import RealDisk
from tests.unit.cluster.replica_cluster import ReplicaCluster, eventually, log_bytes, placed, running
from tests.unit.storage.storage_helpers import values

VALUES = [f"value-{number}".encode() for number in range(50)]


async def same_everywhere(cluster: ReplicaCluster, *brokers: int) -> None:
    """Wait until these brokers have all of the first one's log, and know that it is committed."""
    leader, *followers = [cluster.brokers[broker_id] for broker_id in brokers]
    for follower in followers:
        await eventually(lambda follower=follower: follower.log.high_watermark == leader.log.log_end_offset)  # type: ignore[misc]
        assert log_bytes(follower.log) == log_bytes(leader.log)
        with_records = [entry for entry in leader.log.leader_epochs.entries if entry[1] < leader.log.log_end_offset]
        assert follower.log.leader_epochs.entries == with_records


def test_what_is_acknowledged_is_on_all_in_sync_replicas_byte_for_byte(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as cluster:
            await cluster.create(placed(1, 2, 3))
            for value in VALUES:
                await cluster.produce(1, value)
                assert all(broker.log.log_end_offset == cluster.brokers[1].log.log_end_offset
                           for broker in cluster.brokers.values())  # fmt: skip
            await same_everywhere(cluster, 1, 2, 3)
            assert values(cluster.brokers[3].log) == VALUES

    asyncio.run(scenario())


async def seconds_until_followers_know(cluster: ReplicaCluster, records: int) -> float:
    """How long it takes until every record was known to be committed everywhere, before the next one came."""
    await cluster.create(placed(1, 2, 3))
    started = asyncio.get_running_loop().time()
    for count in range(1, records + 1):
        await cluster.produce(1, b"value")
        await eventually(
            lambda count=count: all(b.log.high_watermark == count for b in cluster.brokers.values())  # type: ignore[misc]
        )
    return asyncio.get_running_loop().time() - started


def test_the_watermark_reaches_followers_that_have_readers_without_waiting_for_the_next_record(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, settings=FetchSettings(wait_max_ms=2000), reads_by_rack=True) as cluster:
            assert await seconds_until_followers_know(cluster, 10) < 10  # not ten long polls

    asyncio.run(scenario())


def test_a_record_costs_a_follower_that_has_no_readers_one_round_trip(tmp_path: Path) -> None:
    """A second one for the watermark alone would cost as much again."""

    async def scenario() -> None:
        async with running(tmp_path, settings=FetchSettings(wait_max_ms=60_000)) as cluster:
            await cluster.create(placed(1, 2, 3))
            await asyncio.sleep(1.2)  # followers of what was just added are in a hurry
            before = cluster.brokers[1].fetches
            for _ in range(40):
                await cluster.produce(1, b"value")
            assert cluster.brokers[1].fetches - before < 1.5 * 2 * 40

    asyncio.run(scenario())


def test_the_watermark_reaches_followers_when_their_wait_is_over_at_the_latest(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, settings=FetchSettings(wait_max_ms=300)) as cluster:
            assert await seconds_until_followers_know(cluster, 5) < 10

    asyncio.run(scenario())


def test_a_leader_change_cuts_off_what_only_the_old_leader_had(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as cluster:
            await cluster.create(placed(1, 2, 3))
            await cluster.produce(1, b"a", b"b")
            cluster.cut_off.add(1)
            await cluster.brokers[2].fetchers.close()  # as if cut off, with their requests
            await cluster.brokers[3].fetchers.close()
            cluster.append(1, b"lost-1", acks=1)
            cluster.append(1, b"lost-2", b"lost-3", acks=1)
            await cluster.elect(2, (2, 3))
            await cluster.produce(2, b"c")
            await same_everywhere(cluster, 2, 3, 1)
            assert values(cluster.brokers[1].log) == [b"a", b"b", b"c"]
            await eventually(lambda: set(cluster.registration().isr) == {1, 2, 3})

    asyncio.run(scenario())


def test_an_epoch_that_got_no_record_does_not_keep_a_former_leader_from_following(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, 2) as cluster:
            await cluster.create(placed(1, 2))
            await cluster.produce(1, b"a")
            for leader in (2, 1, 2, 1):
                await cluster.elect(leader, (1, 2))
            await cluster.produce(1, b"b")
            await same_everywhere(cluster, 1, 2)

    asyncio.run(scenario())


def test_logs_that_diverged_over_several_epochs_become_one(tmp_path: Path) -> None:
    """Each broker alone has led, in turn, without the other knowing: then the last leader's log counts."""

    async def scenario() -> None:
        async with running(tmp_path, 2) as cluster:
            await cluster.create(placed(1, 2))
            await cluster.produce(1, b"common")
            await cluster.brokers[2].fetchers.close()
            cluster.brokers[1].replicas.fetchers = cluster.brokers[2].replicas.fetchers = None
            for turn in range(3):
                for leader in (1, 2):
                    await cluster.elect(leader, (leader,))
                    for number in range(leader + turn):
                        cluster.append(leader, f"{leader}-{turn}-{number}".encode())
            cluster.brokers[1].replicas.fetchers = cluster.brokers[1].fetchers
            await cluster.elect(2, (2,))
            await same_everywhere(cluster, 2, 1)
            assert values(cluster.brokers[1].log)[0] == b"common"
            await eventually(lambda: set(cluster.registration().isr) == {1, 2})

    asyncio.run(scenario())


def test_a_new_replica_begins_where_the_leaders_log_begins(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, 2, segment_bytes=400) as cluster:
            await cluster.create(placed(1))
            for number in range(0, 50, 5):
                await cluster.produce(1, *VALUES[number : number + 5])
            leader = cluster.brokers[1].log
            leader.advance_log_start_offset(23)  # in the middle of a batch
            leader.delete_old_segments(0)
            assert leader.segments.first.base_offset > 0
            await cluster.change(replicas=(1, 2), partition_epoch=1)
            follower = cluster.brokers[2]
            await eventually(lambda: follower.log.high_watermark == 50)
            assert follower.log.log_start_offset == 23
            assert values(follower.log) == VALUES[23:]
            await eventually(lambda: cluster.registration().isr == (1, 2))

    asyncio.run(scenario())


def test_a_follower_writes_down_where_its_log_begins_before_it_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, 2) as cluster:
            await cluster.create(placed(1, 2))
            await cluster.produce(1, b"a", b"b", b"c")
            leader = cluster.brokers[1].partition()
            leader.delete_records(2)
            await eventually(lambda: leader.low_watermark == 2)
            written = read_offsets(RealDisk(), str(tmp_path / "2" / LOG_START_OFFSETS))
            assert list(written.values()) == [2]

    asyncio.run(scenario())


def test_a_replica_that_is_taken_away_removes_its_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, 2) as cluster:
            await cluster.create(placed(1, 2))
            await cluster.produce(1, b"a")
            await cluster.change(replicas=(1,), isr=(1,), partition_epoch=1)
            with pytest.raises(KafkaError):
                cluster.brokers[2].partition()
            await cluster.produce(1, b"b")
            assert not (tmp_path / "2" / "topic-0").exists()

    asyncio.run(scenario())


def test_a_leader_that_is_gone_is_tried_until_it_is_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, 2) as cluster:
            cluster.cut_off.add(1)
            await cluster.create(placed(1, 2, isr=(1,)))
            await cluster.produce(1, b"a")
            await asyncio.sleep(0.1)
            assert cluster.brokers[2].log.log_end_offset == 0
            cluster.cut_off.clear()
            await same_everywhere(cluster, 1, 2)

    asyncio.run(scenario())


def test_many_partitions_are_led_and_followed_by_all(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as cluster:
            count = 12
            await cluster.create(*(placed(*(1 + (index + step) % 3 for step in range(3))) for index in range(count)))
            for index in range(count):
                await cluster.produce(1 + index % 3, *VALUES, index=index)
            for index in range(count):
                copies = [broker.partition(index).log for broker in cluster.brokers.values()]
                assert {log.log_end_offset for log in copies} == {len(VALUES)}
                assert len({log_bytes(log) for log in copies}) == 1

    asyncio.run(scenario())


def test_records_beyond_one_response_arrive_in_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, 2, segment_bytes=100_000) as cluster:
            await cluster.create(placed(1))
            large = [bytes([number]) * 40_000 for number in range(60)]
            for value in large:
                await cluster.produce(1, value)
            await cluster.change(replicas=(1, 2), partition_epoch=1)
            await same_everywhere(cluster, 1, 2)
            assert values(cluster.brokers[2].log) == large

    asyncio.run(scenario())


def test_a_follower_flushes_before_it_says_that_it_has_a_record(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, 2, flush_messages=1) as cluster:
            await cluster.create(placed(1, 2))
            for value in VALUES[:5]:
                await cluster.produce(1, value)
                assert cluster.brokers[2].log.flushed_offset == cluster.brokers[1].log.log_end_offset

    asyncio.run(scenario())


def test_a_claim_to_be_a_replica_is_believed_with_the_registered_epoch_only(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, 2) as cluster:
            cluster.brokers[2].broker_epoch -= 1  # an earlier life of the broker
            await cluster.create(placed(1, 2, isr=(1,)))
            await cluster.produce(1, b"a")
            await eventually(lambda: (1, ErrorCode.NOT_LEADER_OR_FOLLOWER) in cluster.brokers[1].metrics.errors)
            assert cluster.brokers[2].log.log_end_offset == 0
            cluster.brokers[2].broker_epoch += 1
            await same_everywhere(cluster, 1, 2)

    asyncio.run(scenario())


def test_a_partition_that_goes_while_its_leader_is_asked_is_not_asked_for_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, 2) as cluster:
            await cluster.create(placed(1, 2), placed(1, 2))
            await cluster.produce(1)
            fetcher, _ = cluster.brokers[2].fetchers._fetchers[1, 0]
            gone = cluster.brokers[2].partition(0)
            copy = fetcher._copies[key_of(gone)]
            cluster.brokers[2].fetchers.drop(gone)
            fetcher._ask_again(key_of(gone), copy)  # as when the leader's answer comes only now
            await cluster.produce(1, index=1)
            assert not fetcher._session.asks_for(key_of(gone), copy)

    asyncio.run(scenario())
