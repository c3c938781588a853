"""How the driver and the tasks reach the cluster, in code without async."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from barnabas.client.client import Client, connect
from barnabas.client.consume.fetch_options import FetchOptions
from barnabas.client.list_offsets import Isolation
from barnabas.client.metadata import TopicInfo, TopicPartition
from barnabas.client.options import WrongOption
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.spark.kafka_options import KafkaOptions
from barnabas.spark.options import Assign, Subscribe, SubscribePattern, Topics

T = TypeVar("T")
_PAUSE_SECONDS = 0.3

SMALLEST_FETCH, LARGEST_FETCH = 1 << 20, 8 << 20
"""In bytes, unless the options say otherwise: a task reads one partition, so it can take much of it at once."""
_BYTES_PER_RECORD = 1024

NEW_TOPIC_GRACE_MS = 3000
"""A broker learns of a new topic a moment after the controller: so long an unknown one may be a new one."""


def new_runner() -> asyncio.Runner:
    """An event loop for work that goes on between calls; whoever makes it closes it."""
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Do the work on an event loop of its own, and wait for it."""
    with new_runner() as runner:
        return runner.run(work)


def open_client(kafka: KafkaOptions) -> Client:
    """A client for `async with`, on the running loop."""
    return connect(kafka.bootstrap, **kafka.client_settings())


async def persevere(attempt: Callable[[], Awaitable[T]], timeout_ms: int) -> T:
    """Do again what fails in a way that may pass, while there is time: a cluster that restarts is back soon."""
    deadline = time.monotonic() + timeout_ms / 1000
    while True:
        try:
            return await attempt()
        except KafkaError as error:
            if not error.retriable or time.monotonic() > deadline:
                raise
        await asyncio.sleep(_PAUSE_SECONDS)


def fetch_options(kafka: KafkaOptions, offsets: int) -> FetchOptions:
    """For a range of so many offsets: a small one is not to bring much of what follows it."""
    settings = kafka.settings
    fetch_bytes = max(SMALLEST_FETCH, min(LARGEST_FETCH, _BYTES_PER_RECORD * offsets))
    return FetchOptions(
        isolation_level=settings.get("isolation_level", Isolation.READ_UNCOMMITTED),
        fetch_max_wait_ms=settings.get("fetch_max_wait_ms", 500),
        fetch_min_bytes=settings.get("fetch_min_bytes", 1),
        fetch_max_bytes=settings.get("fetch_max_bytes", 50 << 20),
        max_partition_fetch_bytes=settings.get("max_partition_fetch_bytes", fetch_bytes),
        check_crcs=settings.get("check_crcs", True),
        client_rack=settings.get("client_rack", ""),
        auto_offset_reset="none",
        metadata_max_age_ms=settings.get("metadata_max_age_ms", 300_000),
    )


async def find_topics(client: Client, topics: Topics) -> list[TopicInfo]:
    """What the cluster knows of the topics that are to be read."""
    match topics:
        case SubscribePattern(pattern):
            matches = re.compile(pattern).fullmatch
            found = await client.retrying(client.metadata.all_topics)
            return [topic for topic in found if matches(topic.name) and not topic.is_internal]
        case Subscribe(names):
            wanted = list(names)
        case Assign(partitions):
            wanted = list(dict.fromkeys(partition.topic for partition in partitions))
    await _refresh(client, wanted)
    return [client.metadata.cluster.topics[name] for name in wanted]


async def _refresh(client: Client, topics: Sequence[str]) -> None:
    """Wait a moment for a topic that may be new, and as long as for any other answer for a broker that is away."""
    grace_ends = client.clock.monotonic() + NEW_TOPIC_GRACE_MS / 1000

    async def refresh() -> KafkaError | None:
        try:
            await client.metadata.refresh(topics)
        except KafkaError as error:
            is_missing = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not is_missing or client.clock.monotonic() < grace_ends:
                raise
            return error
        return None

    missing = await client.retrying(refresh)
    if missing is not None:
        raise missing


async def find_partitions(client: Client, topics: Topics) -> list[TopicPartition]:
    """The partitions that are to be read, as they are now."""
    found = await find_topics(client, topics)
    there = [TopicPartition(topic.name, partition.partition) for topic in found for partition in topic.partitions]
    if not isinstance(topics, Assign):
        return there
    for partition in topics.partitions:
        if partition not in there:
            raise WrongOption(f"assign names {partition}, which does not exist")
    return sorted(topics.partitions)
