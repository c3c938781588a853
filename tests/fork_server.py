"""A process that has imported all of `barnabas`, and forks the `barnabas` commands that tests run.

A fork takes milliseconds; a new interpreter needs half a second of processor time to import the same modules. The
command is a process of its own all the same: arguments, environment, working directory, standard streams, signals and
exit code are what they are for `python -m barnabas.cli`. `tests.forked` is the other side.

Every request is one datagram on the control socket, with four descriptors: the standard streams, and a socket on which
the process id is sent (with a pidfd), and later the exit status. At the end of the control socket the tests are over:
what is left of the commands is killed.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, NoReturn

PACKAGES = ("broker", "cli", "client", "cluster", "coordination", "coordinator", "net", "records", "storage", "sync")
MOST_BYTES = 1 << 17
"""Of a request: an environment is much smaller."""


def import_all() -> None:
    """Everything that a command may import, but for Spark's side and what only few commands need."""
    for package in PACKAGES:
        path = importlib.import_module(f"barnabas.{package}").__path__
        for module in pkgutil.walk_packages(path, f"barnabas.{package}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    with contextlib.suppress(ImportError):
        importlib.import_module("uvloop")
    assert len(os.listdir("/proc/self/task")) == 1, "a thread does not survive a fork"


def serve(control: socket.socket) -> dict[str, Any]:
    """Fork until the control socket ends. Returns in children only: what the command was asked for."""
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    statuses: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for key, _ in selector.select():
            if key.fileobj is not control:
                pid, status = statuses.pop(key.fd)
                _, code = os.waitpid(pid, 0)
                selector.unregister(key.fd)
                os.close(key.fd)
                with contextlib.suppress(OSError), status:  # the test may have lost interest
                    status.sendall(b"%d\n" % os.waitstatus_to_exitcode(code))
                continue
            request, descriptors, _, _ = socket.recv_fds(control, MOST_BYTES, 4)
            if not request:
                for pid, _ in statuses.values():
                    os.kill(pid, signal.SIGKILL)
                sys.exit()
            *streams, told = descriptors
            status = socket.socket(fileno=told)
            pid = os.fork()
            if pid == 0:
                selector.close()
                for pidfd, (_, other) in statuses.items():
                    os.close(pidfd)
                    other.close()
                status.close()
                control.close()
                for target, stream in enumerate(streams):
                    os.dup2(stream, target)
                    os.close(stream)
                return dict(json.loads(request))
            for stream in streams:
                os.close(stream)
            pidfd = os.pidfd_open(pid)
            statuses[pidfd] = pid, status
            selector.register(pidfd, selectors.EVENT_READ)
            socket.send_fds(status, [b"%d\n" % pid], [pidfd])


def run_command(arguments: list[str], environment: dict[str, str], directory: str) -> NoReturn:
    """What `python -m barnabas.cli` does, and the end of an interpreter but for its clearing of memory."""
    from barnabas.cli.main import main

    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    # Those of the parent are bound to other files. Like an interpreter's own they stay open to the end.
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.argv = [str(Path(sys.modules["barnabas.cli"].__path__[0], "__main__.py")), *arguments]
    code = 1
    try:
        main()
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]  # as a fork of multiprocessing does
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = 120  # as Python's own
    os._exit(code)


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who interrupts the tests stops the commands in order
    import_all()
    gc.collect()
    gc.freeze()
    request = serve(control)
    gc.unfreeze()
    run_command(**request)


if __name__ == "__main__":
    main()
