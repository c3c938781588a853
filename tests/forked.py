"""Starts `barnabas` commands as forks of one process that has imported everything, and waits for them.

Only where pytest runs: benchmarks and long programs measure a process as its users start it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fork_server import MOST_BYTES

ROOT = Path(__file__).resolve().parent.parent
_READ_AT_START = ("PYTHON", "LANG", "LC_", "BARNABAS_PURE")
_starting = threading.Lock()


class ForkedProcess:
    """What tests use of `subprocess.Popen`."""

    def __init__(
        self, arguments: Sequence[str], streams: tuple[int, int, int], environment: Mapping[str, str] | None = None
    ) -> None:
        """`streams` are the standard ones. The environment is the whole of it, and that of the tests by default."""
        self.args = ["barnabas", *arguments]
        self.returncode: int | None = None
        chosen = dict(os.environ if environment is None else environment)
        request = json.dumps({"arguments": list(arguments), "environment": chosen, "directory": os.getcwd()}).encode()
        assert len(request) < MOST_BYTES
        self._status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(_control(), [request], [*streams, theirs.fileno()])
        told, (self._pidfd,), _, _ = socket.recv_fds(self._status, len("4194304\n"), 1)
        self.pid = int(told)

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._status.settimeout(timeout)
            try:
                answer = self._status.recv(100)
            except (TimeoutError, BlockingIOError):
                assert timeout is not None
                raise subprocess.TimeoutExpired(self.args, timeout) from None
            assert answer.endswith(b"\n"), "the process that forks has died"
            self.returncode = int(answer)
            self._close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                signal.pidfd_send_signal(self._pidfd, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _close(self) -> None:
        self._status.close()
        os.close(self._pidfd)

    def __del__(self) -> None:
        if self.returncode is None:
            self._close()


def run(
    *arguments: str, input: str, environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` does with text: three pipes, until the command has ended."""
    pipes = [os.pipe() for _ in range(3)]
    (theirs_in, ours_in), (ours_out, theirs_out), (ours_err, theirs_err) = pipes
    theirs = (theirs_in, theirs_out, theirs_err)
    try:
        process = ForkedProcess(arguments, theirs, environment)
    finally:
        for descriptor in theirs:
            os.close(descriptor)
    with ThreadPoolExecutor(3) as pool:
        pool.submit(_write, ours_in, input)
        output, errors = pool.submit(_read, ours_out), pool.submit(_read, ours_err)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, code, output.result(), errors.result())


def _write(descriptor: int, text: str) -> None:
    with open(descriptor, "w", encoding="utf-8") as pipe:
        pipe.write(text)  # a command that does not read all has closed the pipe: nobody asks for this error


def _read(descriptor: int) -> str:
    with open(descriptor, encoding="utf-8") as pipe:
        return pipe.read()


def can_fork(environment: Mapping[str, str] | None = None) -> bool:
    """Whether a fork is what a new interpreter would be: what Python and `barnabas` read at their start is the same."""
    chosen = os.environ if environment is None else environment
    return (
        "PYTEST_CURRENT_TEST" in os.environ
        and "BARNABAS_TEST_PYTHON" not in os.environ
        and _read_at_start(chosen) == _read_at_start(os.environ)
    )


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {key: environment[key] for key in environment if key.startswith(_READ_AT_START)}


def _control() -> socket.socket:
    with _starting:
        return _start_server()


@functools.cache
def _start_server() -> socket.socket:
    """One for the life of the tests; it ends with the socket that is returned."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.fork_server", str(theirs.fileno())],
            cwd=ROOT,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    atexit.register(_stop_server, server, ours)
    return ours


def _stop_server(server: subprocess.Popen[bytes], control: socket.socket) -> None:
    control.close()
    server.wait(30)
