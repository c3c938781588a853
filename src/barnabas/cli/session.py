"""How a verb gets to the cluster: run a coroutine on a client, from the first connection to the last."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import typer

from barnabas.cli.output import fail
from barnabas.client.client import Client, connect
from barnabas.client.metadata import TopicInfo, TopicPartition
from barnabas.client.offsets import OffsetSpec, parse_offset

T = TypeVar("T")


def run(bootstrap: str, work: Callable[[Client], Awaitable[T]]) -> T:
    """Connect, work, disconnect."""

    async def session() -> T:
        try:
            client = connect(bootstrap, client_id="barnabas-cli")
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--bootstrap-server") from None
        async with client:
            return await work(client)

    return asyncio.run(session())


def parse_place(text: str, now_ms: int, option: str) -> OffsetSpec:
    """A place in a partition, where a wrong one is an error of usage."""
    try:
        return parse_offset(text, now_ms)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def choose_partitions(topic: TopicInfo, wanted: Sequence[int] | None) -> list[TopicPartition]:
    """All partitions of a topic, or those that are wanted."""
    count = len(topic.partitions)
    for index in wanted or ():
        if index >= count:
            fail(f"topic {topic.name!r} has no partition {index}; it has {count}, counted from 0")
    return [TopicPartition(topic.name, index) for index in wanted or range(count)]
