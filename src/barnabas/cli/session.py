"""How a verb gets to the cluster: run a coroutine on a client, from the first connection to the last.

Verbs import the client only when they run, so that help and completion stay quick.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from barnabas.cli import contexts
from barnabas.cli.output import fail

if TYPE_CHECKING:
    from barnabas import Admin
    from barnabas.client.client import Client
    from barnabas.client.metadata import TopicInfo, TopicPartition
    from barnabas.client.offsets import OffsetSpec

T = TypeVar("T")
_TERMINATED = 128 + signal.SIGTERM


def run(bootstrap: str | None, work: Callable[[Client], Awaitable[T]], *, timeout_s: float | None = None) -> T:
    """Connect, work, disconnect; TimeoutError when that has taken too long. SIGTERM ends it as orderly as Ctrl-C."""
    import asyncio

    from barnabas.client.errors import CannotReach

    target = contexts.choose(bootstrap)

    async def session() -> T:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        async with asyncio.timeout(timeout_s), _client(target) as client:
            return await work(client)

    try:
        return asyncio.run(session())
    except asyncio.CancelledError:
        raise typer.Exit(_TERMINATED) from None
    except CannotReach as error:
        if target.context is not None:
            error.add_note(f"this is the cluster of context {target.context!r}")
        raise


def _client(target: contexts.Target) -> Client:
    """A client that is not connected yet. A wrong option can only come from a file that was edited by hand."""
    from barnabas.client.client import connect
    from barnabas.client.options import check_names, options_of

    try:
        check_names("the client", target.options, options_of(connect))
        options: dict[str, Any] = {"client_id": "barnabas-cli", **target.options}
        return connect(target.bootstrap_servers, **options)
    except ValueError as error:
        if target.context is not None:
            fail(f"context {target.context!r}: {error}; `barnabas context add --replace` mends it")
        raise typer.BadParameter(str(error), param_hint="--bootstrap-server") from None


def administer(bootstrap: str | None, work: Callable[[Admin], Awaitable[T]], *, timeout_s: float | None = None) -> T:
    """The same for work on the nouns of an admin."""
    from barnabas import Admin

    async def session(client: Client) -> T:
        async with Admin(client) as admin:
            return await work(admin)

    return run(bootstrap, session, timeout_s=timeout_s)


def parse_place(text: str, option: str) -> OffsetSpec:
    """A place in a partition, where a wrong one is an error of usage."""
    from barnabas.client.offsets import parse_offset
    from barnabas.core.clock import SystemClock

    try:
        return parse_offset(text, SystemClock().now_ms())
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def choose_partitions(topic: TopicInfo, wanted: Sequence[int] | None) -> list[TopicPartition]:
    """All partitions of a topic, or those that are wanted."""
    from barnabas.client.metadata import TopicPartition

    count = len(topic.partitions)
    for index in wanted or ():
        if index >= count:
            fail(f"topic {topic.name!r} has no partition {index}; it has {count}, counted from 0")
    return [TopicPartition(topic.name, index) for index in wanted or range(count)]
