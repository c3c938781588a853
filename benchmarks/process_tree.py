"""Runs a command and measures it with all its descendants: the seconds that it took, their CPU time, their memory.

    python -m benchmarks.process_tree COMMAND...

A process of its own starts the command and adopts the descendants whose parents end first, as a driver may end before
its JVM. When none is left, the system has added up the CPU time of all that were reaped; that of the others, Spark's
Python workers, is sampled. So is memory, in which pages that processes share count once.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
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


class Tree:
    """The descendants of a process, as samples show them."""

    def __init__(self, root: psutil.Process) -> None:
        self._root = root
        self.peak_bytes = 0
        """The most that they have held at once."""
        self.unreaped_cpu_seconds: dict[int, float] = {}
        """By process, of those whose parents ignore the end of their children: the system adds these nowhere."""

    def sample(self) -> None:
        held_bytes = 0
        for process in self._root.children(recursive=True):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied, FileNotFoundError):  # it has just ended
                held_bytes += process.memory_full_info().pss
                if _ignores_children(process.ppid()):
                    used = process.cpu_times()
                    self.unreaped_cpu_seconds[process.pid] = used.user + used.system
        self.peak_bytes = max(self.peak_bytes, held_bytes)


def _ignores_children(process_id: int) -> bool:
    """As the daemon of Spark's Python workers does."""
    ignored = re.search(r"^SigIgn:\s*(\w+)", Path(f"/proc/{process_id}/status").read_text(), re.MULTILINE)
    return ignored is not None and bool(int(ignored[1], 16) >> (signal.SIGCHLD - 1) & 1)


@contextmanager
def _sampling(tree: Tree) -> Iterator[None]:
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(SAMPLES_EVERY_S):
            tree.sample()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _reap_orphans() -> set[int]:
    """Wait until all have ended; their process ids."""
    reaped: set[int] = set()
    deadline = time.monotonic() + ORPHANS_END_WITHIN_S
    while True:
        try:
            process_id, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return reaped
        if time.monotonic() > deadline:
            sys.exit(f"descendants still run {ORPHANS_END_WITHIN_S:.0f} s after the command has ended")
        if process_id:
            reaped.add(process_id)
        else:
            time.sleep(0.01)


def main(command: list[str]) -> int:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot adopt the descendants of the command")
    tree = Tree(psutil.Process())
    with _sampling(tree):
        began = time.perf_counter()
        code = subprocess.Popen(command).wait()
        seconds = time.perf_counter() - began
        reaped = _reap_orphans()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    unreaped = sum(cpu for process_id, cpu in tree.unreaped_cpu_seconds.items() if process_id not in reaped)
    cpu_seconds = used.ru_utime + used.ru_stime + unreaped
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_bytes": tree.peak_bytes}))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
