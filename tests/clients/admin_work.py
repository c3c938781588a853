"""Work with an admin, from the first connection to the last, and the peers that judge what it did."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import confluent_kafka
import confluent_kafka.admin

from barnabas import Admin, ErrorCode, KafkaError
from barnabas.client.outcomes import PartlyFailed

T = TypeVar("T")


def administer(address: str, work: Callable[[Admin], Awaitable[T]]) -> T:
    async def session() -> T:
        async with asyncio.timeout(60), Admin(address) as admin:
            return await work(admin)

    return asyncio.run(session())


async def comes_to(question: Callable[[], Awaitable[object]], expected: object) -> None:
    """Kafka's brokers learn of a change, a new topic too, a moment after it was answered."""
    deadline = time.monotonic() + 30
    answer: object = None
    while time.monotonic() < deadline:
        try:
            answer = await question()
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            answer = error
        if answer == expected:
            return
        await asyncio.sleep(0.02)
    assert answer == expected


def parted(failed: PartlyFailed) -> tuple[set[Any], set[Any]]:
    """What was done, and what failed."""
    return set(failed.done), set(failed.errors)


def judge(address: str) -> Any:
    """Another's admin: librdkafka's."""
    return confluent_kafka.admin.AdminClient({"bootstrap.servers": address})


def led_partitions(address: str, topic: str) -> int:
    """How many partitions with a leader another's admin sees; none of a topic that it does not know yet."""
    found = judge(address).list_topics(timeout=60).topics.get(topic)
    return sum(partition.leader >= 0 for partition in found.partitions.values()) if found else 0


def produce(address: str, topic: str, count: int, *, partition: int = 0, timestamp_ms: int = 0) -> None:
    """Records of one second each, the first one at `timestamp_ms`."""
    producer = confluent_kafka.Producer({"bootstrap.servers": address})
    for number in range(count):
        producer.produce(topic, b"v%d" % number, partition=partition, timestamp=timestamp_ms + 1000 * number)
    assert producer.flush(60) == 0
