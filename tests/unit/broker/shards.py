"""A coordinator's shard as simple as can be, on a real log whose watermark moves when the test says so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from barnabas.broker.coordinator_runtime import Producer, ShardDriver
from barnabas.cluster.image import Partition as Registration
from barnabas.cluster.partition import Partition
from barnabas.coordinator.outcome import CoordinatorRecord, Now, Outcome, Token
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.seams import Clock
from barnabas.storage.log import Log
from barnabas.wire.primitives import DecodeError
from tests.unit.storage.storage_helpers import NOW_MS, new_log

ME, OTHER = 1, 2
POISON = b"poison"
T = TypeVar("T")


class RunningClock:
    def now_ms(self) -> int:
        return NOW_MS

    def monotonic(self) -> float:
        return time.monotonic()


class HeldExecutor:
    """Does the work at once, and tells of it when it may."""

    def __init__(self) -> None:
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    def submit(self, function: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        async def work() -> T:
            await self.may_go_on.wait()
            return function(*arguments)

        return asyncio.ensure_future(work())


class Notes:
    """A shard that keeps a note for every key."""

    def __init__(self) -> None:
        self.notes: dict[bytes, bytes | None] = {}
        self.replayed: list[tuple[int, bytes, int]] = []
        self.ends: list[tuple[int, bool]] = []
        self.is_loaded = False
        self.deadline_ms: int | None = None
        self.expired: list[int] = []

    def replay(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:
        if record.value == POISON:
            raise DecodeError("not a note")
        self.replayed.append((offset, record.key, producer_id))
        self.notes[record.key] = record.value

    def replay_end(self, producer_id: int, committed: bool) -> None:
        self.ends.append((producer_id, committed))

    def loaded(self, now: Now) -> Outcome:
        self.is_loaded = True
        return Outcome()

    @property
    def next_deadline_ms(self) -> int | None:
        return self.deadline_ms

    def expire(self, now: Now) -> Outcome:
        if self.deadline_ms is None or now.monotonic_ms < self.deadline_ms:
            return Outcome()
        self.expired.append(now.monotonic_ms)
        self.deadline_ms = None
        return Outcome([CoordinatorRecord(b"expired", b"yes")])


Operation = Callable[[Notes, Token, Now], Outcome]


def write(key: bytes, value: bytes | None = b"value") -> Operation:
    """Note something, and reply when that is committed."""

    def operation(shard: Notes, token: Token, now: Now) -> Outcome:
        shard.notes[key] = value
        return Outcome([CoordinatorRecord(key, value)]).reply(token, f"wrote {key.decode()}")

    return operation


def read(key: bytes) -> Operation:
    return lambda shard, token, now: Outcome().reply(token, shard.notes.get(key))


def refuse(shard: Notes, token: Token, now: Now) -> Outcome:
    return Outcome().reply(token, KafkaError(ErrorCode.ILLEGAL_GENERATION))


class Stage:
    """A driver of `Notes`, with everything around it."""

    def __init__(self, directory: Path, **config: Any) -> None:
        self.log: Log = new_log(directory / "topic-0", **config)
        self.partition = Partition(ME, self.log, lambda partition: None)
        self.executor = HeldExecutor()
        self.clock: Clock = RunningClock()
        self.committed: list[Outcome] = []
        self.suspected: list[int] = []
        self.leader_epoch = -1

    def lead(self, isr: tuple[int, ...] = (ME,)) -> None:
        """Elect this broker, under a new epoch."""
        self.leader_epoch += 1
        self.partition.update(Registration((ME, OTHER), isr, ME, self.leader_epoch, self.leader_epoch))

    def lose(self) -> None:
        """Elect the other one."""
        self.leader_epoch += 1
        self.partition.update(Registration((ME, OTHER), (OTHER,), OTHER, self.leader_epoch, self.leader_epoch))

    def drive(self) -> ShardDriver[Notes]:
        return ShardDriver(
            self.partition,
            Notes,
            self.clock,
            self.executor,
            lambda driver, outcome: self.committed.append(outcome),
            lambda log, offset: self.suspected.append(offset),
        )

    async def driver(self) -> ShardDriver[Notes]:
        """A driver that has loaded."""
        self.lead()
        driver = self.drive()
        await until(lambda: driver.shard is not None)
        self.committed.clear()
        return driver

    def commit(self) -> None:
        """Let the watermark reach the end."""
        self.log.complete_flush(self.log.prepare_flush())
        self.partition.flushed(self.log.flushed_offset)


async def until(condition: Callable[[], object]) -> None:
    """Wait for what nobody signals, and not for ever."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def held(directory: Path) -> Stage:
    """Appends are committed by `Stage.commit` alone."""
    return Stage(directory, flush_messages=1)


async def outcome_of(future: Awaitable[Any]) -> Any:
    """A reply, or the code of the refusal."""
    try:
        return await asyncio.wait_for(future, 5)
    except KafkaError as error:
        return error.code


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 20))


PRODUCER = Producer(7, 3)
