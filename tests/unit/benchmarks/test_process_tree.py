"""What a command costs includes its descendants, also those that outlive their parents."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from benchmarks import process_tree

BURN = "import time\nwhile time.process_time() < 0.5: pass\n"
HOLD = "held = bytearray(b'x') * 100_000_000; print('held', flush=True); input()"


def starting(program: str) -> list[str]:
    """A command whose child starts a process of this program, and ends before it."""
    start = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {program!r}])"
    return [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {start!r}])"]


def test_cpu_time_of_orphans_is_counted() -> None:
    assert process_tree.run(starting(BURN), timeout=60).cpu_seconds >= 0.5


def test_memory_of_descendants_is_counted() -> None:
    start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HOLD!r}])"
    command = [sys.executable, "-c", start]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        held = process_tree.held_bytes(psutil.Process())
        child.communicate("end\n")
    assert held >= 100_000_000


def test_printed_lines_are_returned() -> None:
    assert process_tree.run([sys.executable, "-c", "print('a'); print('b')"], timeout=60).lines == ["a", "b"]


def test_a_failed_command_is_an_error_with_its_last_lines() -> None:
    with pytest.raises(RuntimeError, match=r"ended with 3:\nno room left"):
        process_tree.run(["/bin/sh", "-c", "echo no room left >&2; exit 3"], timeout=60)
