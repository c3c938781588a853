"""Cleaning in a process of its own, so that the loop of the broker never waits for it.

The child is started with the first job and ended when the cleaner is idle. Jobs go in through its standard input, and
what it did, or could not do, comes out of its standard output, both pickled. If the broker dies, its input ends, and
the child with it: nobody else may write `.cleaned` files when the next broker starts.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import IO, Any

from barnabas.storage.cleaner import WorkerDied
from barnabas.storage.cleaning import CannotClean, CleanedGroup, CleaningJob, clean
from barnabas.storage.disk import RealDisk

_DONE = None
_PATIENCE_SECONDS = 10


class ChildRunner:
    """A `Runner`. Its threads take turns: at most one iterates at a time."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None

    def clean(self, job: CleaningJob) -> Iterator[CleanedGroup]:
        child = self._child = self._child or _start()
        assert child.stdin is not None
        assert child.stdout is not None
        finished = False
        try:
            pickle.dump(job, child.stdin)
            child.stdin.flush()
            while (answer := pickle.load(child.stdout)) is not _DONE:
                if isinstance(answer, Exception):
                    raise answer
                yield answer
            finished = True
        except (EOFError, BrokenPipeError, pickle.UnpicklingError) as error:
            raise WorkerDied(f"the cleaner's process {child.pid} ended with {child.wait(_PATIENCE_SECONDS)}") from error
        finally:
            if not finished:
                self.stop()

    def stop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait(_PATIENCE_SECONDS)
            for pipe in (child.stdin, child.stdout):
                _close(pipe)


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,  # an interrupt from the keyboard is the broker's
    )


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        with contextlib.suppress(BrokenPipeError):  # what was not sent is not wanted any more
            pipe.close()


def main() -> None:
    """Do the jobs that come in until the input ends."""
    jobs: queue.Queue[CleaningJob] = queue.Queue()
    threading.Thread(target=_receive, args=(sys.stdin.buffer, jobs), daemon=True).start()
    output = sys.stdout.buffer
    disk = RealDisk()
    while True:
        job = jobs.get()
        for answer in _answers(disk, job):
            pickle.dump(answer, output)
            output.flush()


def _receive(source: IO[bytes], jobs: queue.Queue[CleaningJob]) -> None:
    while True:
        try:
            jobs.put(pickle.load(source))
        except EOFError:
            os._exit(0)  # at once, in the middle of whatever is being written


def _answers(disk: RealDisk, job: CleaningJob) -> Iterator[Any]:
    try:
        yield from clean(disk, job)
        yield _DONE
    except (CannotClean, OSError) as error:
        yield error


if __name__ == "__main__":
    main()
