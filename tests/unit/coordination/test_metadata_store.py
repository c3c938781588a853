"""One suite for every metadata store: what the contract promises, whoever keeps it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from barnabas.coordination.embedded import EmbeddedStore
from barnabas.coordination.memory import Faults, MemoryMetadata, MemoryStore
from barnabas.coordination.store import (
    MAX_APPEND_BYTES,
    Batch,
    Claim,
    Done,
    MetadataStore,
    Refusal,
    Refused,
    Snapshot,
    Trimmed,
    Unknown,
    pack,
    packed_size,
    unpack,
)
from barnabas.coordination.zookeeper import ZooKeeperStore
from barnabas.core.clock import SystemClock

Body = Callable[["Cluster"], Awaitable[None]]


class Cluster:
    """Sessions of one store, opened by broker id and closed at the end of a test."""

    def __init__(self, make: Callable[[int], MetadataStore]) -> None:
        self._make = make
        self._open: list[MetadataStore] = []

    async def session(self, broker_id: int) -> MetadataStore:
        store = self._make(broker_id)
        await store.open()
        self._open.append(store)
        return store

    async def close(self) -> None:
        for store in self._open:
            await store.close()


@pytest.fixture(params=["memory", "embedded", pytest.param("zookeeper", marks=pytest.mark.peers)])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Body], None]:
    """Run the body of a test on a fresh store; nothing in it may take longer than ten seconds."""
    connect = request.getfixturevalue("zookeeper_path") if request.param == "zookeeper" else ""

    async def main(body: Body) -> None:
        metadata = MemoryMetadata()
        path = str(tmp_path / "metadata.db")
        makers: dict[str, Callable[[int], MetadataStore]] = {
            "memory": lambda broker_id: MemoryStore(metadata, broker_id),
            "embedded": lambda broker_id: EmbeddedStore(path, broker_id, SystemClock(), poll_s=0.01),
            "zookeeper": lambda broker_id: ZooKeeperStore(connect, broker_id),
        }
        cluster = Cluster(makers[request.param])
        try:
            async with asyncio.timeout(10):
                await body(cluster)
        finally:
            await cluster.close()

    return lambda body: asyncio.run(main(body))


async def win(store: MetadataStore) -> int:
    epoch = await store.campaign((await store.claim()).epoch)
    assert epoch is not None
    return epoch


async def read_all(store: MetadataStore, index: int = 0) -> list[Batch]:
    found: list[Batch] = []
    while batches := await store.read(index):
        assert isinstance(batches, list)
        found += batches
        index = batches[-1].next_index
    return found


def test_appended_records_are_read_back_in_order_with_their_append_ids(run: Callable[[Body], None]) -> None:
    async def body(cluster: Cluster) -> None:
        store = await cluster.session(1)
        epoch = await win(store)
        assert await store.append(epoch, 0, b"first", [b"a", b"", b"c" * 100]) == Done(3)
        assert await store.append(epoch, 3, b"second", [b"d"]) == Done(4)
        expected = [Batch(0, epoch, b"first", (b"a", b"", b"c" * 100)), Batch(3, epoch, b"second", (b"d",))]
        assert await read_all(store) == expected
        assert await read_all(store, 3) == expected[1:]
        assert await store.read(4) == []

    run(body)


def test_only_one_candidate_wins_and_every_win_has_a_higher_epoch(run: Callable[[Body], None]) -> None:
    async def body(cluster: Cluster) -> None:
        one, two = await cluster.session(1), await cluster.session(2)
        assert await one.claim() == Claim(0, None)
        won = [epoch for epoch in await asyncio.gather(one.campaign(0), two.campaign(0)) if epoch is not None]
        assert won == [1]
        holder = (await one.claim()).holder
        winner, loser = (one, two) if holder == 1 else (two, one)
        assert await loser.campaign(1) is None, "the holder is alive"
        assert await winner.campaign(0) is None, "the epoch has moved on"
        assert await winner.campaign(1) == 2
        assert await loser.claim() == Claim(2, winner.broker_id)

    run(body)


def test_the_claim_is_free_once_its_session_has_ended(run: Callable[[Body], None]) -> None:
    async def body(cluster: Cluster) -> None:
        one, two = await cluster.session(1), await cluster.session(2)
        epoch = await win(one)
        await one.close()
        assert await two.claim() == Claim(epoch, None)
        assert await two.campaign(epoch) == epoch + 1

    run(body)


def test_a_holder_that_is_known_to_be_gone_is_not_waited_for(run: Callable[[Body], None]) -> None:
    async def body(cluster: Cluster) -> None:
        one, two, three = [await cluster.session(number) for number in (1, 2, 3)]
        epoch = await win(one)
        assert await two.campaign(epoch, gone=3) is None, "it does not hold the claim"
        assert await two.campaign(epoch - 1, gone=1) is None, "the epoch has moved on"
        assert await two.campaign(epoch, gone=1) == epoch + 1
        assert await three.campaign(epoch + 1, gone=1) is None, "another one holds the claim by now"
        assert await three.claim() == Claim(epoch + 1, 2)
        assert await one.append(epoch, 0, b"late", [b"a"]) == Refused(Refusal.STALE_EPOCH)

    run(body)


def test_append_after_losing_the_claim_is_refused(run: Callable[[Body], None]) -> None:
    async def body(cluster: Cluster) -> None:
        store = await cluster.session(1)
        old = await win(store)
        assert await store.append(old, 0, b"id", [b"in time"]) == Done(1)
        new = await win(store)
        assert await store.append(old, 1, b"id", [b"late"]) == Refused(Refusal.STALE_EPOCH)
        assert await store.snapshot(old, 0, [b"late"]) == Refused(Refusal.STALE_EPOCH)
        assert await store.append(new, 1, b"id", [b"right"]) == Done(2)
        assert [batch.records for batch in await read_all(store)] == [(b"in time",), (b"right",)]
        assert await store.latest_snapshot() is None

    run(body)


def test_append_at_any_index_but_the_end_is_refused(run: Callable[[Body], None]) -> None:
    async def body(cluster: Cluster) -> None:
        store = await cluster.session(1)
        epoch = await win(store)
        assert await store.append(epoch, 0, b"a", [b"1", b"2"]) == Done(2)
        for index in (0, 1, 3):
            assert await store.append(epoch, index, b"b", [b"3"]) == Refused(Refusal.INDEX_MOVED)
        assert len(await read_all(store)) == 1

    run(body)


def test_an_append_has_a_size_limit_and_is_never_empty(run: Callable[[Body], None]) -> None:
    async def body(cluster: Cluster) -> None:
        store = await cluster.session(1)
        epoch = await win(store)
        full = bytes(MAX_APPEND_BYTES - packed_size([b""]))
        with pytest.raises(ValueError, match="split it"):
            await store.append(epoch, 0, b"a", [full, b""])
        with pytest.raises(ValueError, match="at least one"):
            await store.append(epoch, 0, b"a", [])
        assert await store.append(epoch, 0, b"a", [full]) == Done(1)

    run(body)


def test_a_long_list_is_read_whole_in_several_steps(run: Callable[[Body], None]) -> None:
    async def body(cluster: Cluster) -> None:
        store = await cluster.session(1)
        epoch = await win(store)
        for index in range(100):
            await store.append(epoch, index, b"%d" % index, [b"%d" % index * 5_000])
        assert [batch.append_id for batch in await read_all(store)] == [b"%d" % index for index in range(100)]

    run(body)


def test_a_snapshot_stands_for_what_it_trims(run: Callable[[Body], None]) -> None:
    async def body(cluster: Cluster) -> None:
        store = await cluster.session(1)
        epoch = await win(store)
        for index in range(4):
            await store.append(epoch, index, b"%d" % index, [b"record"])
        assert await store.latest_snapshot() is None
        assert await store.snapshot(epoch, 3, [b"chunk 0", b"chunk 1"]) == Done(4)
        assert await store.latest_snapshot() == Snapshot(3, (b"chunk 0", b"chunk 1"))
        assert await store.read(0) == await store.read(2) == Trimmed(3)
        assert [batch.index for batch in await read_all(store, 3)] == [3]
        assert await store.snapshot(epoch, 2, [b"older"]) == Refused(Refusal.INDEX_MOVED)
        assert await store.snapshot(epoch, 5, [b"beyond"]) == Refused(Refusal.INDEX_MOVED)
        assert await store.append(epoch, 4, b"4", [b"record"]) == Done(5)
        assert await store.snapshot(epoch, 5, [b"newer"]) == Done(5)
        assert await store.latest_snapshot() == Snapshot(5, (b"newer",))
        assert await store.read(5) == []

    run(body)


def test_a_watch_fires_at_once_and_then_for_every_change_of_others(run: Callable[[Body], None]) -> None:
    async def body(cluster: Cluster) -> None:
        writer, follower = await cluster.session(1), await cluster.session(2)
        await follower.watch()

        async def told(question: Callable[[], Awaitable[object]], expected: object, change: Awaitable[object]) -> None:
            async def follow() -> None:
                while await question() != expected:
                    await follower.watch()

            following = asyncio.create_task(follow())
            await asyncio.sleep(0.05)  # it has looked, and waits
            await change
            await following

        async def length() -> int:
            return len(await read_all(follower))

        await told(follower.claim, Claim(1, 1), writer.campaign(0))
        for index in range(5):
            await told(length, index + 1, writer.append(1, index, b"%d" % index, [b"record"]))
        await told(follower.claim, Claim(1, None), writer.close())

    run(body)


def test_the_first_proposed_cluster_id_is_kept(run: Callable[[Body], None]) -> None:
    async def body(cluster: Cluster) -> None:
        one, two = await cluster.session(1), await cluster.session(2)
        assert await one.cluster_id("first") == "first"
        assert await two.cluster_id("second") == "first"

    run(body)


def test_everything_is_there_again_in_a_new_session(run: Callable[[Body], None]) -> None:
    async def body(cluster: Cluster) -> None:
        before = await cluster.session(1)
        await before.cluster_id("the-cluster")
        epoch = await win(before)
        for index in range(3):
            await before.append(epoch, index, b"%d" % index, [b"record %d" % index])
        await before.snapshot(epoch, 1, [b"chunk"])
        await before.close()
        after = await cluster.session(1)
        assert await after.cluster_id("another") == "the-cluster"
        assert (await after.claim()).epoch == epoch
        assert await after.latest_snapshot() == Snapshot(1, (b"chunk",))
        assert [batch.records for batch in await read_all(after, 1)] == [(b"record 1",), (b"record 2",)]
        assert await win(after) > epoch

    run(body)


def test_an_unknown_answer_is_settled_by_looking_for_the_append_id() -> None:
    """Retry with the same id and index until it is in the list: it is there once, however often it was tried."""

    async def main(seed: int) -> None:
        metadata = MemoryMetadata()
        store = MemoryStore(metadata, 1, Faults(Random(seed), unknown=0.7, max_delay_s=0.002))
        await store.open()
        epoch = await win(store)
        for number in range(10):
            append_id = b"%d" % number
            while True:
                answer = await store.append(epoch, number, append_id, [append_id])
                if isinstance(answer, Done):
                    break
                assert isinstance(answer, Unknown) or answer == Refused(Refusal.INDEX_MOVED)
                batches = await store.read(number)
                assert isinstance(batches, list)
                if batches:
                    assert batches[0].append_id == append_id
                    break
        assert [batch.append_id for batch in await read_all(store)] == [b"%d" % number for number in range(10)]

    for seed in range(20):
        asyncio.run(main(seed))


def test_packed_records_are_unpacked_as_they_were_and_a_cut_is_noticed() -> None:
    records = (b"one", b"", b"three" * 1000)
    assert unpack(pack(records)) == records
    assert len(pack(records)) == packed_size(records)
    with pytest.raises(ValueError, match="middle of one"):
        unpack(pack(records)[:-1])
