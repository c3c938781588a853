"""A damaged replica begins anew, over real sockets, when nobody can count on what it has any more, and not before."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.unit.cluster.replica_cluster import ReplicaCluster, eventually, log_bytes, placed, running

A_MOMENT_S = 0.05


def kept(tmp_path: Path) -> list[Path]:
    return sorted(tmp_path.glob("*/*-stray"))


async def leave(cluster: ReplicaCluster, leader: int, isr: tuple[int, ...]) -> None:
    """As the controller does it when a member leaves by its own wish: the leader epoch rises."""
    for broker in cluster.brokers.values():
        broker.manager.is_taken_up = True
    await cluster.elect(leader, isr)


def test_a_damaged_follower_is_fetched_anew_once_it_has_left(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path, file_delete_delay_ms=0) as cluster:
            await cluster.create(placed(1, 2, 3))
            for number in range(20):
                await cluster.produce(1, b"%d" % number)
            follower = cluster.brokers[2]
            old = follower.log
            old.damage = "a bit has flipped"
            await cluster.change(isr=(1, 2, 3), partition_epoch=5)
            await cluster.change(isr=(1, 3), partition_epoch=6)
            assert follower.log is old, "under this leader epoch a fetch of it may still be on its way"
            await cluster.elect(1, (1, 3))
            assert follower.log is old, "while a broker starts, metadata may be of its earlier life"
            await leave(cluster, 1, (1, 3))
            assert follower.log is not old
            assert len(kept(tmp_path)) == 1
            assert follower.replicas.renewals == 1
            await eventually(lambda: 2 in cluster.registration().isr)
            assert log_bytes(follower.log) == log_bytes(cluster.brokers[1].log)
            await eventually(lambda: not kept(tmp_path))
            await cluster.produce(1, b"goes on")
            assert follower.replicas.damaged() == []

    asyncio.run(story())


def test_a_damaged_leader_is_fetched_anew_from_the_one_that_follows_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path, file_delete_delay_ms=0) as cluster:
            await cluster.create(placed(1, 2, 3))
            for number in range(20):
                await cluster.produce(1, b"%d" % number)
            old = cluster.brokers[1].log
            old.damage = "a bit has flipped"
            await leave(cluster, 2, (2, 3))
            assert cluster.brokers[1].log is not old
            await cluster.produce(2, b"goes on")
            await eventually(lambda: 1 in cluster.registration().isr)
            assert log_bytes(cluster.brokers[1].log) == log_bytes(cluster.brokers[2].log)

    asyncio.run(story())


def test_the_only_copy_is_kept_whatever_the_metadata_say(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path) as cluster:
            await cluster.create(placed(1, 2, 3))
            await cluster.produce(1, b"x")
            old = cluster.brokers[1].log
            old.damage = "a bit has flipped"
            await cluster.elect(1, (1,))
            await cluster.elect(-1, ())
            await cluster.elect(1, (1,))
            await asyncio.sleep(A_MOMENT_S)
            assert cluster.brokers[1].log is old
            assert kept(tmp_path) == []
            assert [each.problem for each in cluster.brokers[1].replicas.damaged()] == ["a bit has flipped"]

    asyncio.run(story())


def test_a_log_that_cannot_be_opened_is_put_away_once_nobody_counts_on_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path, file_delete_delay_ms=0) as cluster:
            await cluster.create(placed(1, 3))
            await cluster.produce(1, b"x")
            follower = cluster.brokers[2]
            follower.manager._closed_logs["topic", 0] = follower.manager.directories[0]
            write_nonsense(tmp_path / "2" / "topic-0")
            await cluster.change(replicas=(1, 2, 3), isr=(1, 2, 3), partition_epoch=5)
            assert [(each.leader_epoch, each.problem) for each in follower.replicas.damaged()] == [
                (None, "its files cannot be opened")
            ]
            await leave(cluster, 1, (1, 3))
            assert len(kept(tmp_path)) == 1
            await eventually(lambda: 2 in cluster.registration().isr)
            assert log_bytes(follower.log) == log_bytes(cluster.brokers[1].log)
            await eventually(lambda: not kept(tmp_path))
            assert follower.replicas.damaged() == []

    asyncio.run(story())


def write_nonsense(directory: Path) -> None:
    directory.mkdir()
    (directory / "this is no number.log").write_bytes(b"?")


def test_a_copy_that_is_damaged_before_it_was_complete_leaves_the_older_files(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path, file_delete_delay_ms=0) as cluster:
            await cluster.create(placed(1, 2, 3))
            await cluster.produce(1, b"x")
            cluster.cut_off.add(1)
            follower = cluster.brokers[2]
            follower.log.damage = "a bit has flipped"
            await leave(cluster, 1, (1, 3))
            (path,) = kept(tmp_path)
            size = (path / f"{0:020d}.log").stat().st_size
            assert size
            follower.log.damage = "another bit"
            await leave(cluster, 1, (1, 3))
            assert kept(tmp_path) == [path]
            await cluster.tell(cluster.image.__class__(index=9, brokers=cluster.image.brokers))
            await eventually(lambda: not kept(tmp_path))

    asyncio.run(story())
