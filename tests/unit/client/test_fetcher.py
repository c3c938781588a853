"""What a consumer makes of the rarer answers of brokers, which are scripted here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, cast

import pytest

from barnabas.client.client import Client
from barnabas.client.connections import Address
from barnabas.client.consume.consumer_errors import CorruptRecords, LogTruncated
from barnabas.client.consume.fetch_options import FetchOptions
from barnabas.client.consume.fetcher import Fetcher
from barnabas.client.consume.locator import Locator
from barnabas.client.consume.positions import Begin
from barnabas.client.consumer import Consumer
from barnabas.client.list_offsets import Isolation
from barnabas.client.metadata import BrokerInfo, ClusterInfo, PartitionInfo, TopicInfo, TopicPartition
from barnabas.core.clock import SystemClock
from barnabas.core.errors import ErrorCode
from barnabas.records.batch import HEADER_SIZE, write_crc
from barnabas.records.builder import BatchBuilder
from barnabas.wire.messages.k01_fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

TOPIC_ID = bytes(range(16))
PARTITION = TopicPartition("orders", 0)
LEADER, FOLLOWER = 1, 2


def batch(base_offset: int, count: int, epoch: int = 3) -> bytes:
    builder = BatchBuilder()
    for number in range(count):
        builder.append(None, b"%d" % (base_offset + number), timestamp_ms=0)
    return bytes(builder.build(base_offset, epoch))


def answer(records: bytes = b"", **fields: Any) -> PartitionData:
    return PartitionData(partition_index=0, high_watermark=100, records=memoryview(records), **fields)


class Script:
    """Stands in for the fetcher's connections: answers fetch after fetch, then keeps the rest waiting."""

    def __init__(self, *answers: PartitionData) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[int, Any]] = []
        """Who was asked, and for which partition."""

    async def request(self, address: Address, message: FetchRequest, **_: Any) -> FetchResponse:
        self.asked.append((address.port, message.topics[0].partitions[0]))
        if not self.answers:
            await asyncio.Event().wait()
        data = self.answers.pop(0)
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])])

    def drop(self, address: Address) -> None: ...

    async def close(self) -> None: ...


class ScriptedClient(Client):
    def __init__(self, script: Script) -> None:
        super().__init__("127.0.0.1:1", network=cast("Any", None), clock=SystemClock(), random=Random(1))
        self._script = script
        brokers = {number: BrokerInfo(number, "127.0.0.1", number, None) for number in (LEADER, FOLLOWER)}
        partitions = (PartitionInfo(0, LEADER, 3, (LEADER, FOLLOWER), (LEADER, FOLLOWER), ()),)
        self.metadata.cluster = ClusterInfo(
            "c", 1, brokers, {"orders": TopicInfo("orders", TOPIC_ID, False, partitions)}
        )
        self.metadata.forget = lambda topics: None  # type: ignore[method-assign]  # nobody could be asked anew

    def separate_connections(self) -> Any:
        return self._script


def consuming(script: Script, work: Callable[[Consumer], Awaitable[None]], **options: Any) -> None:
    async def session() -> None:
        async with asyncio.timeout(20), Consumer(ScriptedClient(script), **options) as consumer:
            consumer.assign({PARTITION: 0})
            await work(consumer)

    asyncio.run(session())


async def values(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        found += [int(record.value) for record in await consumer.poll(5000)]
    return found


def test_a_log_that_was_cut_is_read_from_the_cut_on(caplog: pytest.LogCaptureFixture) -> None:
    cut = answer(diverging_epoch=EpochEndOffset(epoch=2, end_offset=6))
    script = Script(answer(batch(0, 10)), cut, answer(batch(6, 2, epoch=4)))

    async def work(consumer: Consumer) -> None:
        assert await values(consumer, 10) == list(range(10))
        assert await values(consumer, 2) == [6, 7]

    with caplog.at_level(logging.WARNING):
        consuming(script, work)
    asked = [(wanted.fetch_offset, wanted.last_fetched_epoch) for _, wanted in script.asked[:3]]
    assert asked == [(0, -1), (10, 3), (6, 2)]
    assert "the log of orders-0 was cut at offset 6, and 4 offsets" in caplog.text


def test_without_a_reset_a_log_that_was_cut_is_an_error() -> None:
    script = Script(answer(batch(0, 10)), answer(diverging_epoch=EpochEndOffset(epoch=2, end_offset=6)))

    async def work(consumer: Consumer) -> None:
        await values(consumer, 10)
        with pytest.raises(LogTruncated) as caught:
            await consumer.poll(5000)
        assert (caught.value.position, caught.value.end_offset) == (10, 6)

    consuming(script, work, auto_offset_reset="none")


def test_what_is_buffered_of_a_cut_log_is_fetched_again() -> None:
    cut = answer(diverging_epoch=EpochEndOffset(epoch=2, end_offset=6))
    script = Script(answer(batch(0, 10)), cut, answer(batch(4, 3, epoch=4)))

    async def work(consumer: Consumer) -> None:
        assert [record.offset for record in await consumer.poll(5000, max_records=4)] == [0, 1, 2, 3]
        await asyncio.sleep(0.05)
        assert await values(consumer, 3) == [4, 5, 6]

    consuming(script, work)
    assert [wanted.fetch_offset for _, wanted in script.asked[:3]] == [0, 10, 4]


def test_nothing_is_fetched_behind_the_end_of_a_range() -> None:
    script = Script(answer(batch(0, 10)), answer(batch(10, 10)))
    options = FetchOptions(Isolation.READ_UNCOMMITTED, 500, 1, 50 << 20, 1 << 20, True, "", "none", 300_000)

    async def work() -> None:
        client = ScriptedClient(script)
        fetcher = Fetcher(client, options, Locator(client, options, None))
        fetcher.add(PARTITION, Begin.RESET, 0, until=15)
        fetcher.pump()
        while (fetcher.states[PARTITION].fetch_offset or 0) < 15:
            await fetcher.wait(5)
        await asyncio.sleep(0)
        await fetcher.close()

    asyncio.run(asyncio.wait_for(work(), 20))
    assert [wanted.fetch_offset for _, wanted in script.asked] == [0, 10]


def test_a_nearer_replica_is_read_until_it_fails() -> None:
    script = Script(
        answer(preferred_read_replica=FOLLOWER),
        answer(batch(0, 2)),
        answer(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        answer(batch(2, 2)),
    )

    async def work(consumer: Consumer) -> None:
        assert await values(consumer, 4) == [0, 1, 2, 3]

    consuming(script, work, client_rack="here")
    assert [who for who, _ in script.asked[:4]] == [LEADER, FOLLOWER, FOLLOWER, LEADER]


@pytest.mark.parametrize(
    "claim",
    [
        answer(error_code=ErrorCode.OFFSET_OUT_OF_RANGE),
        answer(diverging_epoch=EpochEndOffset(epoch=2, end_offset=0)),
    ],
)
def test_only_the_leader_can_say_that_an_offset_is_not_in_the_log(claim: PartitionData) -> None:
    script = Script(answer(preferred_read_replica=FOLLOWER), claim, answer(batch(0, 2)))

    async def work(consumer: Consumer) -> None:
        assert await values(consumer, 2) == [0, 1]

    consuming(script, work, auto_offset_reset="none")
    assert [who for who, _ in script.asked[:3]] == [LEADER, FOLLOWER, LEADER]


def test_corrupt_bytes_are_told_at_their_offset_and_can_be_passed_over() -> None:
    damaged = bytearray(batch(2, 2))
    damaged[-1] ^= 1
    script = Script(answer(batch(0, 2) + bytes(damaged)), answer(bytes(damaged)), answer(batch(4, 2)))

    async def work(consumer: Consumer) -> None:
        assert await values(consumer, 2) == [0, 1]
        with pytest.raises(CorruptRecords, match=r"orders-0 at offset 2.*seek past it") as caught:
            await consumer.poll(5000)
        assert caught.value.position == 2
        consumer.seek(PARTITION, 4)
        assert await values(consumer, 2) == [4, 5]

    consuming(script, work)


def test_bytes_that_only_their_decoding_shows_to_be_corrupt_are_told_at_their_offset() -> None:
    damaged = bytearray(batch(2, 2))
    damaged[HEADER_SIZE] ^= 0x7E
    write_crc(memoryview(damaged))
    script = Script(answer(batch(0, 2) + bytes(damaged) + batch(4, 2)))

    async def work(consumer: Consumer) -> None:
        assert await values(consumer, 2) == [0, 1]
        for _ in range(2):
            with pytest.raises(CorruptRecords, match="orders-0 at offset 2"):
                await consumer.poll(5000)
        spoilt = await consumer.poll_batch(5000)
        assert spoilt is not None
        for decode in (spoilt.records, spoilt.to_arrow):
            with pytest.raises(CorruptRecords, match="orders-0 at offset 2"):
                decode()
        script.answers.append(answer(batch(4, 2)))
        consumer.seek(PARTITION, 4)
        assert await values(consumer, 2) == [4, 5]

    consuming(script, work)


def test_a_broker_that_throttles_is_left_in_peace() -> None:
    script = Script(answer(batch(0, 1)))

    async def throttle(address: Address, message: FetchRequest, **_: Any) -> FetchResponse:
        script.asked.append((address.port, message))
        data = answer(batch(len(script.asked) - 1, 1))
        return FetchResponse(
            throttle_time_ms=60_000, responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])]
        )

    script.request = throttle  # type: ignore[method-assign]

    async def work(consumer: Consumer) -> None:
        assert await values(consumer, 1) == [0]
        assert await consumer.poll(50) == []
        assert len(script.asked) == 1

    consuming(script, work)
