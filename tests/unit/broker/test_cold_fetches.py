"""A fetch of records that the page cache has lost: read in a thread first, and a disk that fails there is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from barnabas.broker.dispatch import Later
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.handlers import k01_fetch
from barnabas.broker.metrics import Metrics
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic


class ColdSlice:
    """Ten bytes that are not in memory, and cannot be brought there if the disk is broken."""

    next_offset = 1

    def __init__(self, broken: bool) -> None:
        self.broken = broken
        self.is_warm = False

    def __len__(self) -> int:
        return 10

    def is_cached(self) -> bool:
        return False

    def warm(self) -> None:
        if self.broken:
            raise OSError(5, "Input/output error")
        self.is_warm = True


class FakePartition:
    is_leader = True
    log = SimpleNamespace(high_watermark=1, last_stable_offset=1, log_start_offset=0)

    def __init__(self, broken: bool) -> None:
        self.slice = ColdSlice(broken)

    def read(self, *_: object, **__: object) -> ColdSlice:
        return self.slice


class FakeReplicas:
    def __init__(self) -> None:
        self.partitions = [FakePartition(broken=False), FakePartition(broken=True)]
        self.failed: list[tuple[FakePartition, OSError]] = []

    def get(self, topic: str, index: int) -> FakePartition:
        return self.partitions[index]

    def disk_failed(self, partition: FakePartition, error: OSError) -> ErrorCode:
        self.failed.append((partition, error))
        return ErrorCode.KAFKA_STORAGE_ERROR


class SameLoop:
    def submit(self, function: Callable[..., Any], *arguments: object) -> asyncio.Future[Any]:
        async def run() -> Any:
            return function(*arguments)

        return asyncio.ensure_future(run())


async def fetched(replicas: FakeReplicas) -> FetchResponse:
    broker = SimpleNamespace(
        replicas=replicas,
        executor=SameLoop(),
        fetch_sessions=FetchSessions(0, None),  # type: ignore[arg-type]
        fetch_max_bytes=1000,
        reads_by_rack=False,
        clock=SimpleNamespace(now_ms=lambda: 0),
        metrics=Metrics(),
    )
    wanted = [FetchPartition(index, partition_max_bytes=1000) for index in (0, 1)]
    request = FetchRequest(max_wait_ms=0, max_bytes=1000, topics=[FetchTopic("t", partitions=wanted)])
    context: Any = SimpleNamespace(broker=broker, version=12, listener="")
    later = k01_fetch.handle(request, context)
    assert isinstance(later, Later)
    answered: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()
    later.then(answered.set_result)
    return await asyncio.wait_for(answered, 10)


def test_cold_records_are_read_before_they_are_sent_and_failures_are_told() -> None:
    replicas = FakeReplicas()
    (topic,) = asyncio.run(fetched(replicas)).responses
    good, bad = topic.partitions
    assert replicas.partitions[0].slice.is_warm
    assert (good.error_code, good.records) == (ErrorCode.NONE, replicas.partitions[0].slice)
    assert (bad.error_code, bad.high_watermark, bad.records) == (ErrorCode.KAFKA_STORAGE_ERROR, -1, b"")
    assert [partition for partition, _ in replicas.failed] == [replicas.partitions[1]]
