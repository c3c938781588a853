"""Small programs of users, each run in an interpreter of its own that complains about everything it can see."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

ROOT_OF_EVIL = (
    "Task was destroyed",
    "never awaited",
    "never retrieved",
    "ResourceWarning",
    "unclosed",
    "Exception ignored",
)
PREAMBLE = """\
import asyncio, sys
from barnabas import Consumer, KafkaError, Producer
address, topic = sys.argv[1:3]
"""
MAIN = "asyncio.run(main())\n"
ENDS_WITHIN_S = 60


@contextmanager
def started(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The program with all of Python's warnings, so that nothing unclosed or forgotten is passed over."""
    text = PREAMBLE + textwrap.dedent(program)
    command = [sys.executable, "-W", "default", "-c", text if MAIN.strip() in text else text + MAIN, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a program has printed until its end, which must come in time, and what it complained about."""
    output, errors = process.communicate(timeout=ENDS_WITHIN_S)
    complaints = [line for line in errors.splitlines() if any(evil in line for evil in ROOT_OF_EVIL)]
    assert complaints == [], errors
    return output, errors


def run(program: str, *arguments: str) -> str:
    """What a program prints that has nothing to complain about and ends well."""
    with started(program, *arguments) as process:
        output, errors = ended(process)
    assert (process.returncode, errors) == (0, ""), errors
    return output


def interrupt_after(line: str, program: str, *arguments: str, times: int = 1, at_rest: bool = False) -> str:
    """Press Ctrl-C once a program has printed a line, and waits if `at_rest`; what it printed after it.

    It ends as interrupted programs do.
    """
    with started(program, *arguments) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{line}\n", process.communicate(timeout=ENDS_WITHIN_S)[1]
        if at_rest:
            _await_rest(process)
        for _ in range(times):
            process.send_signal(signal.SIGINT)
            time.sleep(0.2)
        output, errors = ended(process)
    assert process.returncode == -signal.SIGINT, errors
    assert errors.splitlines()[-1] == "KeyboardInterrupt", errors
    return output


def _await_rest(process: subprocess.Popen[str]) -> None:
    """Wait until the main thread waits. Without asyncio, whose runner takes Ctrl-C, it may otherwise come between any
    two steps of Python, such as the making of a coroutine and its start.
    """
    main_thread = psutil.Process(process.pid)
    deadline = time.monotonic() + ENDS_WITHIN_S
    while time.monotonic() < deadline and process.poll() is None:
        switches = main_thread.num_ctx_switches()
        time.sleep(0.05)
        if main_thread.status() == psutil.STATUS_SLEEPING and main_thread.num_ctx_switches() == switches:
            return
    raise AssertionError(f"the program did not come to rest: {process.communicate(timeout=ENDS_WITHIN_S)[1]}")
