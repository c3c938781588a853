"""The bridge between a thread that waits and the loop that works."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from barnabas.sync.portal import in_callers_thread, portal


def interrupt_soon() -> None:
    """From the work itself: by then somebody waits for it, however busy the machine is."""
    main = threading.main_thread().ident
    assert main is not None
    asyncio.get_running_loop().call_later(0.05, signal.pthread_kill, main, signal.SIGINT)


def test_work_runs_on_the_loop_and_its_outcome_comes_back() -> None:
    async def work() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    async def fail() -> None:
        raise LookupError("not here")

    assert portal().run(work()) == "barnabas-sync"
    with pytest.raises(LookupError, match="not here"):
        portal().run(fail())


def test_an_interrupt_cancels_the_work_before_it_is_raised() -> None:
    ended: list[str] = []

    async def work() -> None:
        interrupt_soon()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cancelled")

    with pytest.raises(KeyboardInterrupt):
        portal().run(work())
    assert ended == ["cancelled"]


def test_what_an_interrupted_wait_no_longer_hears_is_handed_over() -> None:
    async def stubborn() -> str:
        interrupt_soon()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return "done all the same"

    unclaimed: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        portal().run(stubborn(), unclaimed.append)
    assert unclaimed == ["done all the same"]


def test_a_function_is_called_in_the_thread_that_waits() -> None:
    async def work() -> str:
        return await in_callers_thread(lambda: threading.current_thread().name)

    assert portal().run(work()) == threading.current_thread().name
    names: list[str] = []
    thread = threading.Thread(target=lambda: names.append(portal().run(work())), name="another")
    thread.start()
    thread.join()
    assert names == ["another"]


def test_an_interrupt_inside_such_a_function_ends_the_work() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    async def work() -> None:
        await in_callers_thread(interrupted)

    with pytest.raises(KeyboardInterrupt):
        portal().run(work())


def test_a_function_is_called_elsewhere_when_nobody_waits_any_more() -> None:
    """Such as a callback of a rebalance whose poll was interrupted: the rebalance goes on."""
    called = threading.Event()
    started = threading.Event()

    async def later() -> None:
        started.set()
        await asyncio.sleep(0.05)
        await in_callers_thread(called.set)

    async def work() -> asyncio.Task[None]:
        return asyncio.create_task(later())

    task = portal().run(work())
    assert started.wait(10)
    assert called.wait(10)

    async def ended() -> None:
        await task

    portal().run(ended())


def test_a_program_that_never_waited_ends_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "from barnabas.sync.portal import portal; portal()"],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
