from __future__ import annotations

import asyncio
import random

import pytest

from barnabas.core.seams import Executor
from tests.simulation.simulated_executor import SimulatedExecutor
from tests.simulation.simulated_process import Process
from tests.simulation.virtual_loop import VirtualLoop


def order_of_work(seed: int) -> tuple[list[int], list[int]]:
    """In which order twenty pieces of work ran, and in which order their results were known."""
    loop = VirtualLoop()
    executor: Executor = SimulatedExecutor(loop, random.Random(seed))
    ran: list[int] = []
    known: list[int] = []

    async def scenario() -> None:
        futures = [executor.submit(ran.append, number) for number in range(20)]
        for number, future in enumerate(futures):
            future.add_done_callback(lambda _, number=number: known.append(number))  # type: ignore[misc]
        await asyncio.gather(*futures)
        await asyncio.sleep(0)

    loop.run_until_complete(scenario())
    loop.close()
    return ran, known


def test_work_runs_and_ends_in_an_order_that_the_seed_chooses() -> None:
    ran, known = order_of_work(1)
    assert sorted(ran) == sorted(known) == list(range(20))
    assert len({tuple(ran), tuple(known), tuple(range(20))}) == 3
    assert order_of_work(1) == (ran, known)
    assert order_of_work(2) != (ran, known)


def test_results_and_errors_reach_whoever_waits() -> None:
    loop = VirtualLoop()
    executor = SimulatedExecutor(loop, random.Random(0))

    async def scenario() -> None:
        assert await executor.submit(int, "42") == 42
        with pytest.raises(ValueError, match="invalid literal"):
            await executor.submit(int, "forty-two")
        executor.submit(int, "never asked for").cancel()
        await asyncio.sleep(1)

    loop.run_until_complete(scenario())
    assert loop.time() > 0
    loop.close()


def test_after_a_crash_nothing_that_was_queued_runs() -> None:
    loop = VirtualLoop()
    executor = SimulatedExecutor(loop, random.Random(0))
    ran: list[int] = []
    process = Process(loop, "broker")
    process.call(executor.submit, ran.append, 1)
    process.kill()
    loop.run_until_complete(asyncio.sleep(60))
    assert ran == []
    loop.close()
