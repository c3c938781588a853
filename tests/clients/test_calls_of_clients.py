"""A request whose answer comes by a call: it comes once, also when the broker hangs, dies, or was not asked before."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

from barnabas.client.client import Client, connect
from barnabas.client.errors import CannotReach, NoAnswer
from barnabas.client.metadata import BrokerInfo
from barnabas.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from barnabas.wire.primitives import EncodeError
from tests.peers import BarnabasServer

TIMEOUT_MS = 3000


async def outcome(client: Client, broker: BrokerInfo, topics: Any = ()) -> Any:
    called: asyncio.Queue[Any] = asyncio.Queue()
    client.call(broker, MetadataRequest(topics=topics), called.put_nowait)
    answer = await asyncio.wait_for(called.get(), 60)
    await asyncio.sleep(0.05)
    assert called.empty()
    return answer


async def call_through_faults(server: BarnabasServer) -> None:
    async with connect(server.address, request_timeout_ms=TIMEOUT_MS) as client:
        (broker,) = client.metadata.cluster.brokers.values()
        await client.connections.close()
        assert isinstance(await outcome(client, broker), MetadataResponse)
        tasks = len(asyncio.all_tasks())
        answered = asyncio.Event()
        client.call(broker, MetadataRequest(topics=[]), lambda _: answered.set())
        assert len(asyncio.all_tasks()) == tasks, "an open connection needs no task"
        await asyncio.wait_for(answered.wait(), 60)

        told: list[Any] = []
        client.call(broker, MetadataRequest(topics=[]), told.append).cancel()
        assert isinstance(await outcome(client, broker), MetadataResponse)
        assert told == [], "a cancelled call does not come back"

        assert isinstance(await outcome(client, broker, topics=5), EncodeError), "what cannot be written is told too"

        server.process.send_signal(signal.SIGSTOP)
        silent = await outcome(client, broker)
        assert isinstance(silent, NoAnswer)
        assert str(silent) == str(NoAnswer(f"broker 1 at {server.address}", "Metadata", TIMEOUT_MS))
        server.process.send_signal(signal.SIGCONT)
        assert isinstance(await outcome(client, broker), MetadataResponse), "on a new connection"

        server.kill()
        assert isinstance(await outcome(client, broker), CannotReach)
        assert isinstance(await outcome(client, broker), CannotReach)


def test_an_answer_comes_once_whatever_happens(tmp_path: Path) -> None:
    with BarnabasServer(tmp_path / "data") as server:
        asyncio.run(call_through_faults(server))
