"""The ZooKeeper store where the contract alone does not look: breaks, lost sessions, who may come in, what is left."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TypeVar

import pytest
from kazoo.client import KazooClient

from barnabas.coordination.store import Batch, Claim, Done, Refusal, Refused, StoreUnavailable, Trimmed, Unknown
from barnabas.coordination.zookeeper import ZooKeeperStore
from barnabas.coordination.zookeeper_requests import Request
from tests.peers import eventually
from tests.unit.coordination.zookeeper_holder import claim_holder
from tests.unit.coordination.zookeeper_proxy import Proxy, Road

T = TypeVar("T")
SESSION_TIMEOUT_S = 2.0
"""Where the end of a session is waited for; elsewhere none may end, however busy the machine is."""


@asynccontextmanager
async def opened(connect: str, broker_id: int = 1, **options: object) -> AsyncIterator[ZooKeeperStore]:
    store = ZooKeeperStore(connect, broker_id, **{"session_timeout_s": 10.0, **options})  # type: ignore[arg-type]
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def behind_proxy(
    connect: str, broker_id: int = 1, **options: object
) -> AsyncIterator[tuple[ZooKeeperStore, Proxy]]:
    address, slash, path = connect.partition("/")
    async with Proxy(address) as proxy, opened(proxy.address + slash + path, broker_id, **options) as store:
        yield store, proxy


@contextmanager
def plain_client(connect: str) -> Iterator[KazooClient]:
    client = KazooClient(connect.partition("/")[0])
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def root(connect: str) -> str:
    return f"/{connect.partition('/')[2]}/barnabas"


def run(body: Callable[[], Awaitable[None]], timeout_s: float = 60) -> None:
    async def main() -> None:
        async with asyncio.timeout(timeout_s):
            await body()

    asyncio.run(main())


async def win(store: ZooKeeperStore) -> int:
    epoch = await store.campaign((await store.claim()).epoch)
    assert epoch is not None
    return epoch


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    """As a broker asks: again and again while the store is out of reach."""
    while True:
        try:
            return await call()
        except StoreUnavailable:
            await asyncio.sleep(0.02)


async def until(store: ZooKeeperStore, question: Callable[[], Awaitable[object]], expected: object) -> None:
    """As a broker waits: look, then sleep until the watch."""
    while await patiently(question) != expected:
        await patiently(store.watch)


# Breaks


@pytest.mark.parametrize(("road", "has_landed"), [(Road.ANSWERS_LOST, True), (Road.REQUESTS_LOST, False)])
def test_an_append_whose_connection_breaks_is_unknown_and_found_by_its_id(
    zookeeper_path: str, road: Road, has_landed: bool
) -> None:
    async def body() -> None:
        async with behind_proxy(zookeeper_path) as (store, proxy):
            epoch = await win(store)
            assert await store.append(epoch, 0, b"before", [b"0"]) == Done(1)
            proxy.change(road)
            assert isinstance(await store.append(epoch, 1, b"broken", [b"1"]), Unknown)
            proxy.change(Road.OPEN)
            found = [Batch(1, epoch, b"broken", (b"1",))] if has_landed else []
            assert await patiently(partial(store.read, 1)) == found
            again = Refused(Refusal.INDEX_MOVED) if has_landed else Done(2)
            assert await store.append(epoch, 1, b"broken", [b"1"]) == again
            assert await store.append(epoch, 2, b"after", [b"2"]) == Done(3)

    run(body)


def test_a_campaign_whose_answer_is_lost_is_settled_by_asking_once_more(zookeeper_path: str) -> None:
    async def body() -> None:
        async with behind_proxy(zookeeper_path) as (store, proxy):
            proxy.change(Road.ANSWERS_LOST)
            with pytest.raises(StoreUnavailable):
                await store.campaign(0)
            proxy.change(Road.OPEN)
            claim = await patiently(store.claim)
            assert claim.holder in (None, 1)
            assert await store.campaign(claim.epoch) == claim.epoch + 1
            assert await store.claim() == Claim(claim.epoch + 1, 1)

    run(body)


def test_a_claim_outlives_a_connection_that_comes_back_in_time(zookeeper_path: str) -> None:
    async def body() -> None:
        async with behind_proxy(zookeeper_path) as (store, proxy):
            epoch = await win(store)
            proxy.cut()
            assert await patiently(store.claim) == Claim(epoch, 1)
            assert await store.append(epoch, 0, b"id", [b"record"]) == Done(1)
            assert proxy.connections == 2

    run(body)


def test_a_watch_tells_what_happened_while_the_connection_was_away(zookeeper_path: str) -> None:
    async def body() -> None:
        async with opened(zookeeper_path, 1) as writer, behind_proxy(zookeeper_path, 2) as (follower, proxy):
            epoch = await win(writer)
            for index in range(5):
                expected = Batch(index, epoch, b"id", (b"record",))
                watching = asyncio.create_task(until(follower, partial(follower.read, index), [expected]))
                await asyncio.sleep(0.05)
                if index % 2 == 0:  # every other time the watches of before must be there again
                    proxy.change(Road.REQUESTS_LOST)
                    proxy.cut()
                await writer.append(epoch, index, b"id", [b"record"])
                proxy.change(Road.OPEN)
                await watching

    run(body)


def test_a_session_that_was_over_campaigns_again_under_a_higher_epoch(zookeeper_path: str) -> None:
    async def body() -> None:
        async with (
            behind_proxy(zookeeper_path, 1, session_timeout_s=SESSION_TIMEOUT_S) as (store, proxy),
            opened(zookeeper_path, 2) as other,
        ):
            epoch = await win(store)
            await until(other, other.claim, Claim(epoch, 1))
            proxy.change(Road.BLOCKED)
            started = time.monotonic()
            await until(other, other.claim, Claim(epoch, None))
            assert time.monotonic() - started < 3 * SESSION_TIMEOUT_S
            proxy.change(Road.OPEN)
            await until(store, store.claim, Claim(epoch, None))
            assert await win(store) == epoch + 1
            assert await store.append(epoch, 0, b"id", [b"late"]) == Refused(Refusal.STALE_EPOCH)
            assert await store.append(epoch + 1, 0, b"id", [b"right"]) == Done(1)

    run(body)


def test_a_holder_that_was_cut_off_is_replaced_and_its_append_refused(zookeeper_path: str) -> None:
    async def body() -> None:
        async with (
            behind_proxy(zookeeper_path, 1, session_timeout_s=SESSION_TIMEOUT_S) as (old, proxy),
            opened(zookeeper_path, 2) as new,
        ):
            epoch = await win(old)
            proxy.change(Road.BLOCKED)
            await until(new, new.claim, Claim(epoch, None))
            assert await new.campaign(epoch) == epoch + 1
            assert await new.append(epoch + 1, 0, b"new", [b"record"]) == Done(1)
            proxy.change(Road.OPEN)
            await until(old, old.claim, Claim(epoch + 1, 2))
            assert await old.append(epoch, 0, b"old", [b"record"]) == Refused(Refusal.STALE_EPOCH)
            assert await old.campaign(epoch) is None

    run(body)


def test_a_restarted_broker_takes_its_claim_over_without_waiting_for_the_old_session(zookeeper_path: str) -> None:
    async def body() -> None:
        async with opened(zookeeper_path, 1) as new:
            assert await new.claim() == Claim(1, 1)
            assert await new.campaign(1) == 2
            assert await new.append(2, 0, b"id", [b"record"]) == Done(1)

    with claim_holder(zookeeper_path, session_timeout_s=40.0) as holder:
        holder.kill()
    run(body, timeout_s=20)


def test_a_broker_id_that_is_in_use_is_refused_by_name(zookeeper_path: str) -> None:
    async def body() -> None:
        async with opened(zookeeper_path, 7, session_timeout_s=SESSION_TIMEOUT_S) as first:
            expected = f"broker id 7 is in use by process {os.getpid()} on .*; stop it first, or give"
            with pytest.raises(StoreUnavailable, match=expected):
                async with opened(zookeeper_path, 7):
                    pass
            assert await win(first) == 1

    run(body)


def test_a_session_of_a_broker_that_vanished_is_waited_for(zookeeper_path: str) -> None:
    async def body() -> None:
        async with behind_proxy(zookeeper_path, 7, session_timeout_s=SESSION_TIMEOUT_S) as (vanished, proxy):
            await win(vanished)
            proxy.change(Road.BLOCKED)
            async with opened(zookeeper_path, 7) as again:
                assert await again.claim() == Claim(1, None)

    run(body)


def test_a_broker_is_present_again_after_its_session_was_over(zookeeper_path: str) -> None:
    async def body() -> None:
        with plain_client(zookeeper_path) as plain:
            async with behind_proxy(zookeeper_path, 7, session_timeout_s=SESSION_TIMEOUT_S) as (store, proxy):
                watching = asyncio.create_task(until(store, store.claim, Claim(1, 1)))
                path = f"{root(zookeeper_path)}/brokers/7"
                for road, is_present in ((Road.OPEN, True), (Road.BLOCKED, False), (Road.OPEN, True)):
                    proxy.change(road)
                    await asyncio.to_thread(eventually, lambda: plain.exists(path) is not None, is_present)
                watching.cancel()

    run(body)


def test_answers_that_make_no_sense_do_not_end_the_store(zookeeper_path: str) -> None:
    async def body() -> None:
        async with behind_proxy(zookeeper_path) as (store, proxy):
            epoch = await win(store)
            proxy.change(Road.ANSWERS_GARBLED)
            with pytest.raises(StoreUnavailable):
                await store.claim()
            await patiently(store.claim)
            assert await store.campaign(epoch) == epoch + 1

    run(body)


# A server that does not answer


def test_a_call_to_a_silent_server_fails_in_time_and_says_where_and_what_to_do(zookeeper_path: str) -> None:
    async def body() -> None:
        async with behind_proxy(zookeeper_path, session_timeout_s=10.0, request_timeout_s=0.3) as (store, proxy):
            epoch = await patiently(partial(win, store))
            proxy.change(Road.BLOCKED)
            expected = rf"ZooKeeper at {proxy.address} did not answer within 0\.3 s; check that it runs"
            with pytest.raises(StoreUnavailable, match=expected):
                await store.read(0)
            answer = await store.append(epoch, 0, b"id", [b"record"])
            assert isinstance(answer, Unknown)
            assert "did not answer within 0.3 s" in answer.detail
            proxy.change(Road.OPEN)

    run(body)


@pytest.mark.proof
def test_the_loop_turns_while_the_server_is_silent(zookeeper_path: str) -> None:
    async def body() -> None:
        async with behind_proxy(zookeeper_path, session_timeout_s=10.0, request_timeout_s=1.0) as (store, proxy):
            proxy.change(Road.BLOCKED)
            calls = [asyncio.create_task(store.claim()) for _ in range(50)]
            longest, before = 0.0, time.monotonic()
            while not all(call.done() for call in calls):
                await asyncio.sleep(0.005)
                longest, before = max(longest, time.monotonic() - before), time.monotonic()
            assert all(isinstance(call.exception(), StoreUnavailable) for call in calls)
            assert longest < 0.5
            proxy.change(Road.OPEN)

    run(body)


@pytest.mark.parametrize("road", [Road.BLOCKED, Road.REQUESTS_LOST])
def test_close_is_quick_and_leaves_no_thread_though_the_server_is_away(zookeeper_path: str, road: Road) -> None:
    async def body() -> None:
        before = set(threading.enumerate())
        async with behind_proxy(zookeeper_path, session_timeout_s=10.0) as (store, proxy):
            proxy.change(road)
            call = asyncio.create_task(store.claim())
            await asyncio.sleep(0.1)
            started = time.monotonic()
            await store.close()
            assert time.monotonic() - started < 4
            with pytest.raises(StoreUnavailable):
                await call
            with pytest.raises(StoreUnavailable, match="is closed"):
                await store.claim()
        executor = {thread for thread in threading.enumerate() if thread.name.startswith("asyncio")}
        assert set(threading.enumerate()) - before - executor == set()

    run(body)


# Who may come in


def test_what_an_authenticated_store_writes_is_its_users_alone(zookeeper_path: str) -> None:
    async def body() -> None:
        async with opened(zookeeper_path, auth="barnabas:secret") as store:
            await store.cluster_id("the-cluster")
            epoch = await win(store)
            await store.append(epoch, 0, b"a", [b"record"])
            await store.append(epoch, 1, b"b", [b"record"])
            await store.snapshot(epoch, 1, [b"chunk"])
            with plain_client(zookeeper_path) as plain:
                plain.add_auth("digest", "barnabas:secret")
                paths = [root(zookeeper_path)]
                for path in paths:
                    paths += [f"{path}/{child}" for child in plain.get_children(path)]
                    (acl,), _ = plain.get_acls(path)
                    assert (acl.id.scheme, acl.id.id.partition(":")[0]) == ("digest", "barnabas"), path
                assert len(paths) == 12
        for stranger, who in (("barnabas:wrong", "user 'barnabas'"), (None, "nobody in particular")):
            with pytest.raises(StoreUnavailable, match=f"does not let in {who}.*; check user and path"):
                async with opened(zookeeper_path, auth=stranger):
                    pass
        async with opened(zookeeper_path, auth="barnabas:secret") as store:
            assert await store.cluster_id("another") == "the-cluster"

    run(body)


def test_without_a_user_everybody_may_come_in(zookeeper_path: str) -> None:
    async def body() -> None:
        async with opened(zookeeper_path) as store, opened(zookeeper_path, 2, auth="somebody:else") as other:
            epoch = await win(store)
            await store.append(epoch, 0, b"id", [b"record"])
            assert await other.read(0) == await store.read(0) != []

    run(body)


def test_clusters_in_different_paths_do_not_meet(zookeeper_path: str) -> None:
    async def body() -> None:
        async with opened(f"{zookeeper_path}/one") as one, opened(f"{zookeeper_path}/two/") as two:
            assert await one.cluster_id("one") == "one"
            assert await two.cluster_id("two") == "two"
            await win(one)
            assert await two.claim() == Claim(0, None)

    run(body)


@pytest.mark.parametrize(
    ("connect", "auth", "problem"),
    [
        ("", None, "zookeeper.connect='' is not allowed: .*; write host:port,host:port/path"),
        ("/path", None, "zookeeper.connect='/path' is not allowed"),
        ("host:port", None, "zookeeper.connect='host:port' is not allowed"),
        ("host:2181,,other:2181", None, "zookeeper.connect='host:2181,,other:2181' is not allowed"),
        ("host:99999", None, "zookeeper.connect='host:99999' is not allowed"),
        ("host:2181", "user", "barnabas.zookeeper.auth is not allowed: write user:password"),
        ("host:2181", ":password", "barnabas.zookeeper.auth is not allowed: write user:password"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_named(connect: str, auth: str | None, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        ZooKeeperStore(connect, 1, auth=auth)


def test_a_later_format_is_refused(zookeeper_path: str) -> None:
    async def body() -> None:
        async with opened(zookeeper_path):
            pass
        with plain_client(zookeeper_path) as plain:
            plain.set(root(zookeeper_path), b'{"format": 99}')
        with pytest.raises(StoreUnavailable, match="has metadata format 99, this version knows 1; upgrade"):
            async with opened(zookeeper_path):
                pass

    run(body)


# What is read and what is left


def test_two_that_open_a_new_path_at_once_find_one_store(zookeeper_path: str) -> None:
    async def body() -> None:
        stores = [ZooKeeperStore(zookeeper_path, broker_id) for broker_id in range(4)]
        await asyncio.gather(*(store.open() for store in stores))
        ids = await asyncio.gather(*(store.cluster_id(f"of-{store.broker_id}") for store in stores))
        assert len(set(ids)) == 1
        await asyncio.gather(*(store.close() for store in stores))

    run(body)


def test_a_reader_that_was_overtaken_by_a_snapshot_is_told(zookeeper_path: str) -> None:
    async def body() -> None:
        async with opened(zookeeper_path, 1) as writer, opened(zookeeper_path, 2) as reader:
            epoch = await win(writer)
            for index in range(150):
                await writer.append(epoch, index, b"%d" % index, [b"record"])
            some = await reader.read(0)
            assert isinstance(some, list)
            assert [batch.index for batch in some] == list(range(len(some)))
            assert 1 < len(some) < 150
            assert await writer.snapshot(epoch, 140, [b"chunk"]) == Done(150)
            assert await reader.read(some[-1].next_index) == Trimmed(140)
            rest = await reader.read(140)
            assert isinstance(rest, list)
            assert [batch.index for batch in rest] == list(range(140, 150))

    run(body)


def test_a_reader_that_is_overtaken_while_it_reads_skips_nothing(
    zookeeper_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list is trimmed, and goes on, between the reader's look at the snapshot and its look at the list."""

    async def body() -> None:
        async with opened(zookeeper_path, 1) as writer, opened(zookeeper_path, 2) as reader:
            epoch = await win(writer)
            for index in range(4):
                await writer.append(epoch, index, b"id", [b"record"])
            ask = reader._session.ask

            async def overtaken(*requests: Request) -> list[object]:
                answers = await ask(*requests)
                if len(requests) > 1:
                    monkeypatch.undo()
                    assert await writer.snapshot(epoch, 3, [b"chunk"]) == Done(4)
                    await writer.append(epoch, 4, b"id", [b"record"])
                return answers

            monkeypatch.setattr(reader._session, "ask", overtaken)
            assert await reader.read(1) == Trimmed(3)

    run(body)


def test_a_batch_that_somebody_has_removed_is_missed(zookeeper_path: str) -> None:
    async def body() -> None:
        async with opened(zookeeper_path) as store:
            epoch = await win(store)
            for index in range(4):
                await store.append(epoch, index, b"id", [b"record"])
            with plain_client(zookeeper_path) as plain:
                plain.delete(f"{root(zookeeper_path)}/log/{2:020d}")
            some = await store.read(0)
            assert isinstance(some, list)
            assert [batch.index for batch in some] == [0, 1]
            with pytest.raises(StoreUnavailable, match=rf"log/{2:020d} is missing in ZooKeeper"):
                await store.read(2)

    run(body)


def test_a_snapshot_removes_what_it_stands_for_and_what_a_crash_has_left(zookeeper_path: str) -> None:
    async def body() -> None:
        async with opened(zookeeper_path) as store:
            epoch = await win(store)
            for index in range(4):
                await store.append(epoch, index, b"id", [b"record"])
            await store.snapshot(epoch, 1, [b"first"])
            with plain_client(zookeeper_path) as plain:
                snapshots, log = f"{root(zookeeper_path)}/snapshots", f"{root(zookeeper_path)}/log"
                plain.create(f"{snapshots}/", sequence=True)
                plain.create(f"{snapshots}/0000000001/0", b"never published")
                plain.create(f"{log}/{0:020d}", b"trimmed by halves")
                await store.snapshot(epoch, 3, [b"second", b"chunk"])
                (kept,) = plain.get_children(snapshots)
                assert sorted(plain.get_children(f"{snapshots}/{kept}")) == ["0", "1"]
                assert plain.get_children(log) == [f"{3:020d}"]

    run(body)


def test_a_controller_of_the_past_cannot_trim_a_later_ones_snapshot(zookeeper_path: str) -> None:
    async def body() -> None:
        async with opened(zookeeper_path, 1) as old, opened(zookeeper_path, 2) as new:
            old_epoch = await win(old)
            await old.append(old_epoch, 0, b"id", [b"record"])
            await old.snapshot(old_epoch, 1, [b"old"])
            await old.close()
            new_epoch = await win(new)
            await new.snapshot(new_epoch, 1, [b"new"])
            async with opened(zookeeper_path, 1) as late:  # wakes up between publishing and trimming
                await late._trim(old_epoch, 1, "0000000000")
            snapshot = await new.latest_snapshot()
            assert snapshot is not None
            assert snapshot.chunks == (b"new",)

    run(body)


def test_the_winner_is_not_woken_by_its_own_appends_but_by_its_successor(zookeeper_path: str) -> None:
    async def body() -> None:
        async with opened(zookeeper_path) as store:
            epoch = await win(store)
            await store.watch()
            await asyncio.sleep(0.1)
            watching = asyncio.create_task(store.watch())
            for index in range(3):
                await store.append(epoch, index, b"id", [b"record"])
            await asyncio.sleep(0.1)
            assert not watching.done()
            with plain_client(zookeeper_path) as plain:
                plain.set(f"{root(zookeeper_path)}/epoch", b"won by another")
            await watching

    run(body)


@pytest.mark.parametrize("has_won_before", [False, True])
def test_what_others_append_while_the_watches_are_armed_wakes_the_next_watch(
    zookeeper_path: str, monkeypatch: pytest.MonkeyPatch, has_won_before: bool
) -> None:
    async def body() -> None:
        async with opened(zookeeper_path, 1) as follower, opened(zookeeper_path, 2) as writer:
            if has_won_before:
                await win(follower)
                await follower.watch()
                with plain_client(zookeeper_path) as plain:
                    plain.delete(f"{root(zookeeper_path)}/controller")
            epoch = await win(writer)
            end = 0
            ask = follower._session.ask

            async def overtaken(*requests: Request) -> list[object]:
                """The answers are there, but the next change is noticed before whoever asked goes on."""
                nonlocal end
                answers = await ask(*requests)
                end = (await append(writer, epoch, end)).next_index
                await asyncio.sleep(0.1)
                return answers

            with monkeypatch.context() as patched:
                patched.setattr(follower._session, "ask", overtaken)
                await follower.watch()
            assert end > 0
            await follower.watch()
            watching = asyncio.create_task(follower.watch())
            await asyncio.sleep(0.1)
            await append(writer, epoch, end)
            await watching

    async def append(store: ZooKeeperStore, epoch: int, index: int) -> Done:
        answer = await store.append(epoch, index, b"id", [b"record"])
        assert isinstance(answer, Done)
        return answer

    run(body)
