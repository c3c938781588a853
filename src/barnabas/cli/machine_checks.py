"""What this machine offers a broker, and whether one starts."""

from __future__ import annotations

import os
import platform
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from barnabas import __version__
from barnabas.cli.findings import Finding, Status
from barnabas.records import engine

_OLDEST_PYTHON = (3, 11)
_FEW_DESCRIPTORS = 4096  # a partition holds one or two, a connection one
_LITTLE_SPACE_BYTES = 1 << 30
_START_TIMEOUT_SECONDS = 15


def check_python(_: Path) -> Iterator[Finding]:
    enough = sys.version_info >= _OLDEST_PYTHON
    detail = (
        f"{platform.python_implementation()} {platform.python_version()} on {platform.system()} {platform.release()}"
    )
    yield Finding("python", Status.OK if enough else Status.FAILURE, detail)
    yield Finding("barnabas", Status.OK, f"{__version__} in {Path(__file__).parents[1]}")


def check_engine(_: Path) -> Iterator[Finding]:
    """Whether the loops over single records run as C; brokers do not need them, clients are slow without."""
    kind = "compiled" if engine.COMPILED else "uncompiled, so clients are slow"
    yield Finding("record engine", Status.OK if engine.COMPILED else Status.WARNING, f"{kind}: {engine.REASON}")


def check_hot_path(_: Path) -> Iterator[Finding]:
    """Whether what every request passes runs as C, as in a wheel that was built for it."""
    spec = find_spec("barnabas.broker.dispatch")
    compiled = spec is not None and spec.origin is not None and not spec.origin.endswith(".py")
    yield Finding(
        "hot path", Status.OK, "compiled" if compiled else "plain Python; a wheel of `make wheel` has it compiled"
    )


def check_packages(_: Path) -> Iterator[Finding]:
    yield _package("uvloop", "the event loop is asyncio's own, which is slower: pip install uvloop")
    yield _package("pyarrow", "no Arrow columns: pip install 'barnabas[arrow]'")


def _package(name: str, without: str) -> Finding:
    try:
        return Finding(name, Status.OK, metadata.version(name))
    except metadata.PackageNotFoundError:
        return Finding(name, Status.WARNING, without)


def check_system_calls(disk: Path) -> Iterator[Finding]:
    if hasattr(os, "sendfile"):
        yield Finding("sendfile", Status.OK, "records leave without a copy through the process")
    else:
        yield Finding("sendfile", Status.WARNING, "not on this system; records are read and written")
    yield _rwf_nowait(disk)


def _rwf_nowait(disk: Path) -> Finding:
    """Whether the file system tells that a read would wait for the device."""
    flag = getattr(os, "RWF_NOWAIT", None)
    without = "; cold reads may stall the broker's loop for the time of a disk access"
    if flag is None:
        return Finding("RWF_NOWAIT", Status.WARNING, f"not on this system{without}")
    try:
        with tempfile.TemporaryFile(dir=disk) as file:
            file.write(b"x")
            file.flush()
            os.preadv(file.fileno(), [bytearray(1)], 0, flag)
    except BlockingIOError:
        pass
    except OSError as error:
        return Finding("RWF_NOWAIT", Status.WARNING, f"refused in {disk} ({error.strerror}){without}")
    return Finding("RWF_NOWAIT", Status.OK, "cold reads are seen and go to a thread")


def check_descriptors(_: Path) -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    detail = f"{soft} (at most {hard})"
    if soft < _FEW_DESCRIPTORS:
        yield Finding(
            "open files", Status.WARNING, f"{detail}; raise it for many partitions: ulimit -n {_FEW_DESCRIPTORS}"
        )
    else:
        yield Finding("open files", Status.OK, detail)


def check_disk(disk: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(disk).free
    status = Status.OK if free >= _LITTLE_SPACE_BYTES else Status.WARNING
    yield Finding("disk space", status, f"{free / (1 << 30):.1f} GiB free in {disk}")
    try:
        with tempfile.TemporaryFile(dir=disk) as file:
            started = time.perf_counter()
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
            elapsed_ms = (time.perf_counter() - started) * 1000
        yield Finding("fsync", Status.OK, f"{elapsed_ms:.1f} ms for 4 KiB")
    except OSError as error:
        yield Finding("fsync", Status.FAILURE, f"cannot write in {disk}: {error.strerror}")


def check_start(_: Path) -> Iterator[Finding]:
    """Start a broker on a free port and an empty directory, and stop it again."""
    with tempfile.TemporaryDirectory(prefix="barnabas-doctor-") as directory:
        log = Path(directory, "log")
        command = [sys.executable, "-m", "barnabas.cli", "up", "--port", "0", "--data-dir", f"{directory}/data"]
        started = time.perf_counter()
        with log.open("wb") as errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as broker:
            assert broker.stdout is not None
            answered = select.select([broker.stdout], [], [], _START_TIMEOUT_SECONDS)[0]
            line = broker.stdout.readline() if answered else b""
            elapsed = time.perf_counter() - started
            broker.send_signal(signal.SIGTERM if line else signal.SIGKILL)
        if line.startswith(b"ready"):
            yield Finding("broker", Status.OK, f"started in {elapsed:.2f} s")
        else:
            why = log.read_text(errors="replace").strip().rpartition("\n")[2] or f"not ready in {elapsed:.0f} s"
            yield Finding("broker", Status.FAILURE, why)


CHECKS: tuple[Callable[[Path], Iterator[Finding]], ...] = (
    check_python,
    check_engine,
    check_hot_path,
    check_packages,
    check_system_calls,
    check_descriptors,
    check_disk,
    check_start,
)
