from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator

import pytest

from tests.simulation.simulated_process import Process, ProcessKilled, check_alive
from tests.simulation.virtual_loop import EPOCH_MS, SimulationError, VirtualClock, VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop(max_steps=10_000)
    yield loop
    loop.close()


def test_a_day_passes_at_once(loop: VirtualLoop) -> None:
    started = time.monotonic()
    loop.run_until_complete(asyncio.sleep(86_400))
    assert loop.time() == 86_400
    assert time.monotonic() - started < 5


def test_the_clock_follows_the_loop(loop: VirtualLoop) -> None:
    clock = VirtualClock(loop)
    loop.run_until_complete(asyncio.sleep(1.5))
    assert clock.monotonic() == 1.5
    assert clock.now_ms() == EPOCH_MS + 1500


def test_timers_run_by_time_and_then_in_the_order_in_which_they_were_set(loop: VirtualLoop) -> None:
    seen: list[str] = []
    for delay, name in ((2, "late"), (1, "first"), (1, "second"), (1, "third")):
        loop.call_later(delay, seen.append, name)
    loop.call_later(1, seen.append, "cancelled").cancel()
    loop.run_until_complete(asyncio.sleep(3))
    assert seen == ["first", "second", "third", "late"]


def test_what_asyncio_offers_works(loop: VirtualLoop) -> None:
    async def scenario() -> list[object]:
        queue: asyncio.Queue[int] = asyncio.Queue(1)
        lock = asyncio.Lock()

        async def produce() -> None:
            for number in range(5):
                async with lock:
                    await queue.put(number)

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 5)
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            group.create_task(produce())
            return [await queue.get() for _ in range(5)]

    assert loop.run_until_complete(scenario()) == [0, 1, 2, 3, 4]
    assert loop.time() == 5


def order_of_ten(shuffle: random.Random | None) -> list[int]:
    loop = VirtualLoop(shuffle=shuffle)
    seen: list[int] = []
    for number in range(10):
        loop.call_later(1, seen.append, number)
    loop.run_until_complete(asyncio.sleep(2))
    loop.close()
    return seen


def test_a_seed_shuffles_what_is_ready_and_always_in_the_same_way() -> None:
    assert order_of_ten(None) == list(range(10))
    shuffled = [order_of_ten(random.Random(seed)) for seed in range(5)]
    assert shuffled == [order_of_ten(random.Random(seed)) for seed in range(5)]
    assert all(sorted(order) == list(range(10)) for order in shuffled)
    assert len({tuple(order) for order in shuffled}) > 1


def test_sets_of_tasks_have_one_order(loop: VirtualLoop) -> None:
    async def scenario() -> list[int]:
        tasks = [asyncio.ensure_future(asyncio.sleep(0, number)) for number in range(30)]
        done, _ = await asyncio.wait(tasks)
        return [task.result() for task in done]

    assert loop.run_until_complete(scenario()) == list(range(30))


def test_waiting_for_what_never_comes_is_an_error_that_tells_who_waits(loop: VirtualLoop) -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(
        SimulationError, match=r"(?s)nothing will ever happen.*waits_for_ever at .*test_virtual_loop.py:\d+"
    ):
        loop.run_until_complete(waits_for_ever())


def test_a_livelock_is_an_error_that_tells_what_is_pending(loop: VirtualLoop) -> None:
    async def spins() -> None:
        loop.call_later(5, print, "a timer")
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    with pytest.raises(SimulationError, match=r"(?s)no end after 10000 steps.*spins.*5.000 s print"):
        loop.run_until_complete(spins())


def test_an_exception_in_a_call_back_ends_the_run(loop: VirtualLoop) -> None:
    loop.call_later(1, int, "no number")
    with pytest.raises(SimulationError, match="no number"):
        loop.run_until_complete(asyncio.sleep(2))
    with pytest.raises(SimulationError, match="no number"):
        loop.close()


def test_an_exception_in_a_task_that_nobody_looks_at_ends_the_run(loop: VirtualLoop) -> None:
    async def fails() -> None:
        raise ValueError("lost")

    async def scenario() -> None:
        asyncio.ensure_future(fails())  # noqa: RUF006
        await asyncio.sleep(1)

    with pytest.raises(SimulationError, match="lost"):
        loop.run_until_complete(scenario())
    with pytest.raises(SimulationError, match="lost"):
        loop.close()


class Witness:
    """A resource that tells when the kernel took it back."""

    def __init__(self) -> None:
        self.abandoned: list[bool] = []

    def abandon(self, power_cut: bool) -> None:
        self.abandoned.append(power_cut)


def test_nothing_of_a_killed_process_runs_again(loop: VirtualLoop) -> None:
    seen: list[str] = []
    witness = Witness()

    async def serve() -> None:
        process.own(witness)
        loop.call_later(10, seen.append, "timer")
        asyncio.ensure_future(tick())  # noqa: RUF006
        try:
            await asyncio.sleep(10)
            seen.append("woke")
        finally:
            check_alive()
            seen.append("cleaned up")

    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            seen.append("tick")

    process = Process(loop, "server")
    process.start(serve())
    loop.call_later(2.5, process.kill)
    loop.run_until_complete(asyncio.sleep(20))
    assert seen == ["tick", "tick"]
    assert witness.abandoned == [False]


def test_a_process_may_die_in_the_middle_of_a_call(loop: VirtualLoop) -> None:
    seen: list[str] = []

    async def serve() -> None:
        try:
            process.kill(power_cut=True)
            check_alive()
        except Exception:
            seen.append("handled its own death")
        finally:
            loop.call_soon(seen.append, "scheduled after death")
            asyncio.ensure_future(asyncio.sleep(1)).add_done_callback(lambda _: seen.append("task after death"))
            await asyncio.sleep(1)
            seen.append("outlived itself")

    process = Process(loop, "server")
    task = process.start(serve())
    loop.run_until_complete(asyncio.sleep(5))
    assert seen == []
    assert not process.alive
    assert not task.done()


def test_a_call_as_a_dead_process_reaches_nothing(loop: VirtualLoop) -> None:
    process = Process(loop, "server")
    process.call(check_alive)
    process.kill()
    with pytest.raises(ProcessKilled):
        process.call(check_alive)


def test_a_stopped_process_does_nothing_until_it_goes_on_and_then_all_that_was_due(loop: VirtualLoop) -> None:
    seen: list[float] = []

    async def serve() -> None:
        loop.call_later(1.5, seen.append, 1.5)
        loop.call_later(1.6, seen.append, 1.6).cancel()
        for _ in range(4):
            await asyncio.sleep(1)
            seen.append(loop.time())

    process = Process(loop, "server")
    process.start(serve())
    loop.call_later(1.2, process.stop)
    loop.call_later(5, process.go_on)
    loop.run_until_complete(asyncio.sleep(4.9))
    assert seen == [1]
    loop.run_until_complete(asyncio.sleep(10))
    assert seen == [1, 1.5, 5, 6, 7]
