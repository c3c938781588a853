"""Tables go into topics row by row, in order, and with the keys' partitions of other clients; librdkafka reads them."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Coroutine
from typing import Any

import confluent_kafka
import pytest

from barnabas import Admin, ColumnsNotDelivered, ColumnsSent, NoTransaction, Producer
from barnabas.client.errors import RecordTooLarge
from barnabas.client.produce.partitioner import partition_of_key

pyarrow = pytest.importorskip("pyarrow")
Found = dict[int, list[tuple[int, bytes | None, bytes | None]]]


def run(work: Coroutine[Any, Any, Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(60):
            return await work

    return asyncio.run(bounded())


def read(address: str, topic: str, partitions: int, count: int) -> Found:
    """Offset, key and value of what librdkafka finds in each partition, up to so many records in all."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)])
        found: Found = {number: [] for number in range(partitions)}
        deadline = time.monotonic() + 20
        while sum(map(len, found.values())) < count and time.monotonic() < deadline:
            for message in consumer.consume(10_000, timeout=0.2):
                assert message.error() is None, message.error()
                found[message.partition()].append((message.offset(), message.key(), message.value()))
        return found
    finally:
        consumer.close()


async def create(address: str, topic: str, partitions: int, **configs: str) -> None:
    async with Admin(address) as admin:
        settings = {name.replace("_", "."): value for name, value in configs.items()}
        await admin.topics.create(topic, partitions=partitions, configs=settings)


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_rows_with_keys_land_where_their_keys_belong_in_their_order(
    cluster: str, topic_name: str, compression: str
) -> None:
    keys = [f"key-{number % 97}".encode() if number % 10 else None for number in range(20_000)]
    values = [b"value-%d" % number for number in range(20_000)]
    table = pyarrow.table({"key": pyarrow.array(keys, pyarrow.binary()), "value": pyarrow.array(values)})

    async def work() -> ColumnsSent:
        await create(cluster, topic_name, 3)
        async with Producer(cluster, compression_type=compression, max_request_size=32_000) as producer:
            return await producer.send_columns(topic_name, table)

    sent = run(work())
    found = read(cluster, topic_name, 3, 20_000)
    assert sent.count == 20_000
    for partition, there in found.items():
        assert list(itertools.chain(*sent.offsets[partition])) == [offset for offset, _, _ in there]
        with_key = [(key, value) for _, key, value in there if key is not None]
        assert with_key == [
            (key, value)
            for key, value in zip(keys, values)
            if key is not None and partition_of_key(key, 3) == partition
        ]
    keyless = {value for there in found.values() for _, key, value in there if key is None}
    assert keyless == set(values[::10])


def test_tables_and_single_records_keep_their_order(cluster: str, topic_name: str) -> None:
    async def work() -> None:
        async with Producer(cluster, linger_ms=1000) as producer:
            for round_ in range(3):
                producer.post(topic_name, b"%d a" % round_)
                batch = pyarrow.record_batch({"value": [f"{round_} b", f"{round_} c"]})
                await producer.send_columns(topic_name, batch)
                producer.post(topic_name, b"%d d" % round_)

    run(work())
    values = [value for _, _, value in read(cluster, topic_name, 1, 12)[0]]
    assert values == [b"%d %s" % (round_, letter) for round_ in range(3) for letter in (b"a", b"b", b"c", b"d")]


def test_a_table_larger_than_the_memory_waits_for_room(cluster: str, topic_name: str) -> None:
    table = pyarrow.table({"value": pyarrow.array([bytes(1000)] * 2000)})

    async def work() -> tuple[ColumnsSent, int]:
        async with Producer(cluster, buffer_memory=100_000, max_request_size=30_000) as producer:
            sending = asyncio.create_task(producer.send_columns(topic_name, table))
            most = 0
            while not sending.done():
                await asyncio.sleep(0)
                most = max(most, producer.metrics().buffered_bytes)
            return await sending, most

    sent, most = run(work())
    assert sent == ColumnsSent(topic_name, 2000, {0: (range(2000),)})
    assert 0 < most <= 100_000


def test_a_partition_column_chooses(cluster: str, topic_name: str) -> None:
    table = pyarrow.table({"value": ["a", "b", "c"], "key": ["x", "x", "x"], "partition": [1, 0, 1]})

    async def work() -> ColumnsSent:
        await create(cluster, topic_name, 2)
        async with Producer(cluster) as producer:
            with pytest.raises(ValueError, match="row 0 is for partition 2; there are 2, counted from 0"):
                await producer.send_columns(topic_name, pyarrow.table({"value": ["d"], "partition": [2]}))
            return await producer.send_columns(topic_name, table)

    assert run(work()).offsets == {0: (range(1),), 1: (range(2),)}
    found = read(cluster, topic_name, 2, 3)
    assert {p: [value for _, _, value in there] for p, there in found.items()} == {0: [b"b"], 1: [b"a", b"c"]}


def test_a_row_that_fits_no_request_keeps_the_whole_table_back(cluster: str, topic_name: str) -> None:
    async def work() -> None:
        await create(cluster, topic_name, 1)
        async with Producer(cluster, max_request_size=10_000) as producer:
            with pytest.raises(RecordTooLarge, match=r"row 1 for .* exceeds max_request_size=10000"):
                await producer.send_columns(topic_name, pyarrow.table({"value": [b"a", bytes(10_000)]}))
            assert (await producer.send_columns(topic_name, pyarrow.table({"value": [b"a"]}))).offsets == {
                0: (range(1),)
            }

    run(work())


def test_rows_that_the_topic_refuses_are_counted_and_the_others_told(cluster: str, topic_name: str) -> None:
    async def work() -> None:
        await create(cluster, topic_name, 1, max_message_bytes="1000")
        async with Producer(cluster) as producer:
            with pytest.raises(ColumnsNotDelivered, match=r"1 of 3 rows .* were not delivered") as caught:
                await producer.send_columns(topic_name, pyarrow.table({"value": [b"a", bytes(5000), b"c"]}))
            assert caught.value.sent.count == 2
            assert caught.value.sent.offsets == {0: (range(2),)}

    run(work())
    assert [value for _, _, value in read(cluster, topic_name, 1, 2)[0]] == [b"a", b"c"]


def test_a_table_goes_into_a_transaction(cluster: str, topic_name: str) -> None:
    async def work() -> ColumnsSent:
        async with Producer(cluster, transactional_id=topic_name) as producer, producer.transaction():
            return await producer.send_columns(topic_name, pyarrow.table({"value": ["a", "b"]}))

    assert run(work()).count == 2
    assert [value for _, _, value in read(cluster, topic_name, 1, 2)[0]] == [b"a", b"b"]


def test_a_table_that_outlives_its_transaction_does_not_get_into_the_next(cluster: str, topic_name: str) -> None:
    table = pyarrow.table({"value": pyarrow.array([bytes(1000)] * 2000)})

    async def leaves(producer: Producer) -> asyncio.Task[ColumnsSent]:
        async with producer.transaction():
            await producer.send(topic_name, b"a")
            sending = asyncio.create_task(producer.send_columns(topic_name, table))
            await asyncio.sleep(0)
        return sending

    async def work() -> None:
        async with Producer(
            cluster, transactional_id=topic_name, buffer_memory=50_000, max_request_size=20_000
        ) as producer:
            sending = await leaves(producer)
            async with producer.transaction():
                await producer.send(topic_name, b"b")
                with pytest.raises(NoTransaction, match="inside of `async with producer"):
                    await sending

    run(work())
    values = [value for _, _, value in read(cluster, topic_name, 1, 2)[0]]
    assert values[0] == b"a"
    assert values[-1] == b"b"
    assert len(values) < 1000


def test_a_producer_with_a_partitioner_wants_to_be_told_the_partitions(cluster: str, topic_name: str) -> None:
    async def work() -> None:
        async with Producer(cluster, partitioner=lambda topic, key, value, count: 0) as producer:
            with pytest.raises(ValueError, match="give the table a column partition"):
                await producer.send_columns(topic_name, pyarrow.table({"value": ["a"]}))

    run(work())
