"""One run of a pipeline at a time: a file lock in its state directory, which the system drops when a process dies."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from barnabas.spark.pipeline.errors import PipelineError


class AlreadyRunning(PipelineError):
    """Another process runs this pipeline."""


@contextmanager
def run_lock(file: Path, name: str) -> Iterator[None]:
    """Held while the pipeline runs; a second run is refused and told who has it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(_refusal(file, name)) from None
        lock.truncate(0)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        lock.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}))
        lock.flush()
        yield


def check_free(file: Path, name: str) -> None:
    """Refuse a run whose pipeline is run already, before it does anything; `run_lock` has the last word."""
    if is_locked(file):
        raise AlreadyRunning(_refusal(file, name))


def is_locked(file: Path) -> bool:
    """Whether somebody runs the pipeline now."""
    try:
        with open(file) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _refusal(file: Path, name: str) -> str:
    return f"pipeline {name!r} is run already, by {_holder(file)}; stop that one first"


def _holder(file: Path) -> str:
    try:
        told = json.loads(file.read_text())
        return f"process {told['pid']} on {told['host']} since {told['since']}"
    except (OSError, ValueError, KeyError):
        return "another process"
