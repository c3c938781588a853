"""Brokers that share a machine: each is forked from the process that looks after them.

Forked, they share the memory of everything that is imported by then, and start without importing it again. Each tells
through a pipe of its own that it serves, or why it cannot. All hold the reading end of one more pipe, the lifeline, on
which nothing is ever said: when their parent dies, however it dies, that pipe ends, and they stop.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn

from barnabas.broker.app import StartError
from barnabas.broker.process import Machine, serve
from barnabas.core.broker_config import BrokerConfig

PARENTS_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
"""What a parent may handle in its own way; a child starts with the system's."""


def fork_broker(
    config: BrokerConfig,
    number: int,
    lifeline: tuple[int, int],
    *,
    machine: Machine | None = None,
    prepare: Callable[[], None] | None = None,
) -> tuple[int, int]:
    """The child's process id, and the pipe on which it tells one JSON object: its `addresses`, or an `error`.

    `prepare` is called in the child before anything else.
    """
    reading, writing = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, PARENTS_SIGNALS)  # until the child no longer has our handlers
    pid = os.fork()
    if pid == 0:
        for parents in (lifeline[1], reading):
            os.close(parents)
        _be_broker(config, number, writing, lifeline[0], machine, prepare)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PARENTS_SIGNALS)
    os.close(writing)
    return pid, reading


def _be_broker(
    config: BrokerConfig,
    number: int,
    pipe: int,
    lifeline: int,
    machine: Machine | None,
    prepare: Callable[[], None] | None,
) -> NoReturn:
    """The life of a child: it never returns to what its parent was doing."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        for each in PARENTS_SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PARENTS_SIGNALS)
        os.setpgid(0, 0)  # Ctrl-C is for the parent alone, which stops its children in order
        if prepare is not None:
            prepare()

        def tell(**facts: object) -> None:
            os.write(pipe, json.dumps(facts).encode())
            os.close(pipe)

        def on_ready(addresses: Sequence[str]) -> None:
            tell(addresses=list(addresses))

        facts = {"broker": number}
        try:
            serve(
                config, on_ready, config["barnabas.metrics.port"], lifeline=lifeline, log_facts=facts, machine=machine
            )
            status = 0
        except StartError as error:
            tell(error=str(error))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
