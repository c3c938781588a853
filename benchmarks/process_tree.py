"""Runs a command and measures it with all its descendants: the seconds that it took, their CPU time, their memory.

    python -m benchmarks.process_tree COMMAND...

A process of its own starts the command and adopts the descendants whose parents end first, as a driver ends before its
JVM. When none is left, the system has added up the CPU time of them all. Memory is sampled, and pages that processes
share count once.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

ROOT = Path(__file__).resolve().parent.parent
SAMPLES_EVERY_S = 0.5
ORPHANS_END_WITHIN_S = 60.0
_PR_SET_CHILD_SUBREAPER = 36
_TAIL = 30


class Measured(NamedTuple):
    seconds: float
    """Until the command ended; its orphans may end later."""
    cpu_seconds: float
    peak_bytes: int
    lines: list[str]
    """What the command printed."""


def run(command: Sequence[str], timeout: float, environment: dict[str, str] | None = None) -> Measured:
    """Run a command to its end; one that fails is an error, with the last lines that it wrote."""
    with tempfile.TemporaryFile() as errors:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.process_tree", *command], cwd=ROOT, text=True, timeout=timeout,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env={**os.environ, **(environment or {})},
        )  # fmt: skip
        if done.returncode:
            errors.seek(0)
            last = "\n".join(errors.read().decode(errors="replace").splitlines()[-_TAIL:])
            raise RuntimeError(f"{' '.join(command)[:500]} ended with {done.returncode}:\n{last}")
    *lines, usage = done.stdout.splitlines()
    return Measured(**json.loads(usage), lines=lines)


def held_bytes(process: psutil.Process) -> int:
    """What the descendants of a process hold now."""
    held = 0
    for descendant in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):  # it has just ended
            held += descendant.memory_full_info().pss
    return held


class _PeakMemory:
    """The most that all descendants of this process have held at once."""

    def __init__(self) -> None:
        self.bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        this = psutil.Process()
        while not self._ended.wait(SAMPLES_EVERY_S):
            self.bytes = max(self.bytes, held_bytes(this))


def _wait_for_orphans() -> None:
    deadline = time.monotonic() + ORPHANS_END_WITHIN_S
    while True:
        try:
            process_id, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if time.monotonic() > deadline:
            sys.exit(f"descendants still run {ORPHANS_END_WITHIN_S:.0f} s after the command has ended")
        if not process_id:
            time.sleep(0.01)


def main(command: list[str]) -> int:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot adopt the descendants of the command")
    memory = _PeakMemory()
    began = time.perf_counter()
    code = subprocess.Popen(command).wait()
    seconds = time.perf_counter() - began
    _wait_for_orphans()
    memory.stop()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    usage = {"seconds": seconds, "cpu_seconds": used.ru_utime + used.ru_stime, "peak_bytes": memory.bytes}
    print(json.dumps(usage))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
