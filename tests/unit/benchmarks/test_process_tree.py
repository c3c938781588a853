"""What a command costs includes its descendants, also those that outlive their parents."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from benchmarks import process_tree

BURN = "import time\nwhile time.process_time() < 0.5: pass\n"
READY = "print('ready', flush=True); input()"


def starting(program: str) -> list[str]:
    """A command whose child starts a process of this program, and ends before it."""
    start = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {program!r}])"
    return [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {start!r}])"]


def test_cpu_time_of_orphans_is_counted() -> None:
    assert process_tree.run(starting(BURN), timeout=60).cpu_seconds >= 0.5


@contextmanager
def parent_of(program: str, before: str = "pass") -> Iterator[process_tree.Tree]:
    """A process runs `before` and starts this program, which prints a line and waits; then a sample is taken."""
    start = f"import subprocess, sys; {before}; subprocess.run([sys.executable, '-c', {program!r}])"
    command = [sys.executable, "-c", start]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        tree = process_tree.Tree(psutil.Process(child.pid))
        tree.sample()
        yield tree
        child.communicate("end\n")


def test_memory_of_descendants_is_counted() -> None:
    with parent_of("held = bytearray(b'x') * 100_000_000\n" + READY) as tree:
        assert tree.peak_bytes >= 100_000_000


def test_cpu_time_of_children_that_no_parent_reaps_is_sampled() -> None:
    ignoring = "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
    with parent_of(BURN + READY, ignoring) as tree:
        assert sum(tree.unreaped_cpu_seconds.values()) >= 0.45  # it is counted in ticks
    with parent_of(BURN + READY) as tree:
        assert not tree.unreaped_cpu_seconds


def test_printed_lines_are_returned() -> None:
    assert process_tree.run([sys.executable, "-c", "print('a'); print('b')"], timeout=60).lines == ["a", "b"]


def test_a_failed_command_is_an_error_with_its_last_lines() -> None:
    with pytest.raises(RuntimeError, match=r"ended with 3:\nno room left"):
        process_tree.run(["/bin/sh", "-c", "echo no room left >&2; exit 3"], timeout=60)
