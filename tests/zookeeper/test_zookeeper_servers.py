"""The store while ZooKeeper's servers come and go: not there yet, restarted, and a leader lost by an ensemble."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from barnabas.coordination.store import Claim, Done, StoreUnavailable, Unknown
from barnabas.coordination.zookeeper import ZooKeeperStore
from tests.peers import HOST, ZooKeeperServer, eventually, free_port
from tests.unit.coordination.zookeeper_holder import claim_holder

T = TypeVar("T")


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await call()
        except StoreUnavailable:
            await asyncio.sleep(0.02)


async def append(store: ZooKeeperStore, epoch: int, index: int) -> None:
    """As a controller appends: until it is certain that the record is there, once."""
    append_id = b"%d" % index
    while True:
        answer = await store.append(epoch, index, append_id, [append_id])
        if isinstance(answer, Done):
            return
        batches = await patiently(partial(store.read, index))
        assert isinstance(batches, list)
        if batches:
            assert batches[0].append_id == append_id
            return
        assert isinstance(answer, Unknown)


async def follow(store: ZooKeeperStore, count: int) -> list[bytes]:
    """As a broker follows: read on, and sleep until the watch where there is nothing, up to so many records."""
    append_ids: list[bytes] = []
    while len(append_ids) < count:
        batches = await patiently(partial(store.read, len(append_ids)))
        assert isinstance(batches, list)
        append_ids += [batch.append_id for batch in batches]
        if not batches:
            await patiently(store.watch)
    return append_ids


@contextmanager
def ensemble(directory: Path) -> Iterator[list[ZooKeeperServer]]:
    """Three servers, ready when they have agreed on a leader."""
    lines = [f"server.{number}={HOST}:{free_port()}:{free_port()}" for number in (1, 2, 3)]
    with ExitStack() as stack:
        servers = [
            stack.enter_context(ZooKeeperServer(directory / str(number), number=number, ensemble=lines))
            for number in (1, 2, 3)
        ]
        for server in servers:
            server.wait_until(server.mode, timeout=30)
        yield servers


def test_a_server_that_is_down_at_the_start_is_waited_for_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()

    def waits() -> list[logging.LogRecord]:
        return [record for record in caplog.records if record.getMessage().startswith("waiting for ZooKeeper")]

    async def main() -> None:
        store = ZooKeeperStore(f"{HOST}:{port}/late", 1, session_timeout_s=10.0, request_timeout_s=1.0)
        opening = asyncio.create_task(store.open())
        await asyncio.to_thread(eventually, lambda: len(waits()) >= 2, True, timeout=30)
        assert not opening.done()
        with await asyncio.to_thread(ZooKeeperServer, tmp_path, port=port):
            async with asyncio.timeout(30):
                await opening
            assert await store.campaign(0) == 1
            await store.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    expected = (
        f"ZooKeeper at {HOST}:{port} did not answer within 1 s (Connection refused); "
        "check that it runs and that zookeeper.connect names it"
    )
    assert any(vars(record)["fields"]["problem"] == expected for record in waits()), waits()


def test_waiting_for_a_server_can_be_given_up() -> None:
    async def main() -> None:
        store = ZooKeeperStore(f"{HOST}:{free_port()}", 1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await store.open()

    asyncio.run(asyncio.wait_for(main(), 5))


def test_everything_goes_on_after_the_server_was_killed_and_started_again(tmp_path: Path) -> None:
    async def main(stack: ExitStack) -> None:
        port = free_port()
        server = stack.enter_context(ZooKeeperServer(tmp_path, port=port))
        writer, follower = (ZooKeeperStore(server.address, broker_id, session_timeout_s=30.0) for broker_id in (1, 2))
        await writer.open()
        await follower.open()
        epoch = await writer.campaign(0)
        assert epoch == 1
        for index in range(10):
            await append(writer, epoch, index)
        following = asyncio.create_task(follow(follower, 11))
        await asyncio.sleep(0.1)
        server.kill()
        unsure = asyncio.create_task(append(writer, epoch, 10))
        stack.enter_context(await asyncio.to_thread(ZooKeeperServer, tmp_path, port=port))
        await unsure
        assert await following == [b"%d" % index for index in range(11)]
        claim = await patiently(follower.claim)
        if claim.holder is None:
            # kazoo waits for an answer of the starting server as long as the session lasts: rarely, it is over then.
            assert await patiently(partial(writer.campaign, epoch)) == epoch + 1
        else:
            assert claim == Claim(epoch, 1)
        await writer.close()
        await follower.close()

    with ExitStack() as stack:
        asyncio.run(asyncio.wait_for(main(stack), 100))


def test_an_ensemble_that_loses_its_leader_loses_no_record_and_no_claim(tmp_path: Path) -> None:
    async def main(servers: list[ZooKeeperServer]) -> None:
        connect = ",".join(server.address for server in servers) + "/cluster"
        writer, follower = (ZooKeeperStore(connect, broker_id, session_timeout_s=30.0) for broker_id in (1, 2))
        await writer.open()
        await follower.open()
        epoch = await writer.campaign(0)
        assert epoch == 1
        (leader,) = [server for server in servers if server.mode() == "leader"]
        for index in range(60):
            if index == 30:
                leader.kill()
            await append(writer, epoch, index)
        assert sorted(server.mode() for server in servers) == ["", "follower", "leader"]
        assert await follow(follower, 60) == [b"%d" % index for index in range(60)]
        assert await patiently(follower.claim) == Claim(1, 1), "the session was not over"
        await writer.close()
        while (await follower.claim()).holder is not None:
            await follower.watch()
        assert await follower.campaign(1) == 2
        await follower.close()

    with ensemble(tmp_path) as servers:
        asyncio.run(asyncio.wait_for(main(servers), 60))


def test_a_killed_holder_is_replaced_when_its_session_times_out(zookeeper: ZooKeeperServer) -> None:
    async def main(connect: str, holder: subprocess.Popen[str]) -> None:
        store = ZooKeeperStore(connect, 2, session_timeout_s=4.0)
        await store.open()
        assert await store.campaign(1) is None
        await store.watch()
        os.kill(holder.pid, signal.SIGKILL)
        while (await store.claim()).holder is not None:
            await store.watch()
        assert await store.campaign(1) == 2
        await store.close()

    connect = f"{zookeeper.address}/holder"
    with claim_holder(connect, session_timeout_s=4.0) as holder:
        asyncio.run(asyncio.wait_for(main(connect, holder), 60))
