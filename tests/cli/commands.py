"""How tests run the `barnabas` command, and what they demand of a failure."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping

from tests import forked
from tests.forked import can_fork
from tests.peers import barnabas_command

Run = Callable[..., subprocess.CompletedProcess[str]]
Ok = Callable[..., str]


def run_barnabas(
    *arguments: str, input: str = "", environment: Mapping[str, str] | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    chosen = {**os.environ, **(environment or {})}
    if can_fork(chosen):
        return forked.run(*arguments, input=input, environment=chosen, timeout=timeout)
    return run_new_interpreter(*arguments, input=input, environment=environment, timeout=timeout)


def run_new_interpreter(
    *arguments: str, input: str = "", environment: Mapping[str, str] | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """As people do; ten times as slow as a fork, to import everything anew."""
    return subprocess.run(
        barnabas_command(*arguments),
        input=input,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, **(environment or {})},
    )


def succeed(*arguments: str, input: str = "", environment: Mapping[str, str] | None = None) -> str:
    """Run what must succeed, and give what it printed."""
    done = run_barnabas(*arguments, input=input, environment=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_on(address: str) -> Run:
    """Runs verbs against a cluster."""
    environment = {"BARNABAS_BOOTSTRAP_SERVER": address}
    return lambda *arguments, input="": run_barnabas(*arguments, input=input, environment=environment)


def succeed_on(address: str) -> Ok:
    """Runs verbs that must succeed against a cluster, and gives what they printed."""
    environment = {"BARNABAS_BOOTSTRAP_SERVER": address}
    return lambda *arguments, input="": succeed(*arguments, input=input, environment=environment)


def assert_one_line(done: subprocess.CompletedProcess[str], *parts: str, code: int = 1) -> None:
    assert done.returncode == code
    (line,) = done.stderr.splitlines()
    assert line.startswith("barnabas: ")
    for part in parts:
        assert part in line
