"""The client produces, consumes and administers, on Barnabas and on Apache Kafka alike; librdkafka reads along."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import confluent_kafka
import pytest

from barnabas.cli.cluster_state import health, look, min_in_sync
from barnabas.cli.copies import measure
from barnabas.client.admin.cluster import Cluster
from barnabas.client.admin.configs import Configs, ConfigSource, ResourceType
from barnabas.client.admin.elections import Elections
from barnabas.client.admin.partitions import Partitions
from barnabas.client.admin.reassignments import Reassignments
from barnabas.client.admin.records import Records
from barnabas.client.admin.topics import Topics
from barnabas.client.client import Client, connect
from barnabas.client.consume.consumed import ConsumerRecord
from barnabas.client.consumer import Consumer
from barnabas.client.list_offsets import MAX_TIMESTAMP, Isolation, list_offsets, resolve_offsets
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import Absolute, Beginning, End, Last, Since
from barnabas.client.outcomes import PartlyFailed
from barnabas.client.producer import Producer
from barnabas.core.errors import ErrorCode, KafkaError
from tests.peers import Broker

T = TypeVar("T")
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def run(address: str, work: Callable[[Client], Awaitable[T]]) -> T:
    async def session() -> T:
        async with asyncio.timeout(60), connect(address) as client:
            return await work(client)

    return asyncio.run(session())


async def comes_to(question: Callable[[], Awaitable[T]], expected: T) -> None:
    """Kafka's brokers learn of a change a moment after it was answered."""
    deadline = time.monotonic() + 10
    while (answer := await question()) != expected and time.monotonic() < deadline:  # noqa: ASYNC110  # nobody tells
        await asyncio.sleep(0.02)
    assert answer == expected


async def read_all(
    client: Client, topic: str, isolation_level: Isolation = Isolation.READ_UNCOMMITTED
) -> dict[int, list[ConsumerRecord]]:
    """Every record of a topic up to its present end, by partition."""
    info = await Topics(client).describe(topic)
    partitions = [TopicPartition(topic, p.partition) for p in info.partitions]
    found: dict[int, list[ConsumerRecord]] = {partition.partition: [] for partition in partitions}
    async with Consumer(client, isolation_level=isolation_level) as consumer:
        await consumer.assign_at(partitions, Beginning())
        ends = await consumer.end_offsets()
        while consumer.assignment():
            for record in await consumer.poll():
                found[record.partition].append(record)
            for partition in consumer.assignment():
                if await consumer.position(partition) >= ends[partition]:
                    consumer.unassign(partition)
    return found


def consume_with_librdkafka(address: str, topic: str, count: int) -> list[confluent_kafka.Message]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False}
    )
    try:
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in partitions])
        found: list[confluent_kafka.Message] = []
        deadline = time.monotonic() + 20
        while len(found) < count and time.monotonic() < deadline:
            found += [message for message in consumer.consume(count - len(found), 1) if message.error() is None]
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_reads_what_the_producer_wrote(cluster: str, topic_name: str, codec: str) -> None:
    async def work(client: Client) -> None:
        await Topics(client).create(topic_name, partitions=1)
        async with Producer(client, compression_type=codec) as producer:
            for number in range(50):
                value = b"v" * 100 + b"%d" % number
                producer.post(topic_name, value, key=b"k", headers=[("h", b"x"), ("n", None)], timestamp=1000)
            producer.post(topic_name, None, key=b"gone")

    run(cluster, work)
    messages = consume_with_librdkafka(cluster, topic_name, 51)
    assert [message.offset() for message in messages] == list(range(51))
    assert [message.value() for message in messages[:50]] == [b"v" * 100 + b"%d" % number for number in range(50)]
    assert messages[0].headers() == [("h", b"x"), ("n", None)]
    assert messages[0].timestamp()[1] == 1000
    assert (messages[50].key(), messages[50].value()) == (b"gone", None)


@pytest.mark.parametrize("codec", CODECS)
def test_the_consumer_reads_what_librdkafka_wrote(cluster: str, topic_name: str, codec: str) -> None:
    run(cluster, lambda client: Topics(client).create(topic_name, partitions=2))
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster, "compression.type": codec, "linger.ms": 5})
    for number in range(200):
        producer.produce(topic_name, b"v%d" % number, b"k%d" % number, number % 2, headers=[("h", b"x")])
    assert producer.flush(60) == 0
    found = run(cluster, lambda client: read_all(client, topic_name))
    for partition in (0, 1):
        assert [record.offset for record in found[partition]] == list(range(100))
        assert [record.value for record in found[partition]] == [b"v%d" % n for n in range(partition, 200, 2)]
        assert found[partition][0].headers == (("h", b"x"),)


def test_keys_go_where_librdkafkas_murmur2_sends_them(cluster: str, topic_name: str) -> None:
    keys = [b"key-%d" % number for number in range(300)]

    async def work(client: Client) -> list[int]:
        await Topics(client).create(topic_name, partitions=7)
        async with Producer(client) as producer:
            deliveries = [producer.post(topic_name, b"", key=key) for key in keys]
        return [(await delivery).partition for delivery in deliveries]

    ours = run(cluster, work)
    theirs: dict[bytes, int] = {}
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster, "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce(
            topic_name, b"", key, on_delivery=lambda _, message: theirs.update({message.key(): message.partition()})
        )
    assert producer.flush(60) == 0
    assert ours == [theirs[key] for key in keys]


def test_keyless_records_reach_every_partition_in_full_batches(cluster: str, topic_name: str) -> None:
    async def work(client: Client) -> dict[int, list[ConsumerRecord]]:
        await Topics(client).create(topic_name, partitions=3)
        async with Producer(client, batch_size=2000) as producer:
            for number in range(2000):
                producer.post(topic_name, b"%d" % number)
        return await read_all(client, topic_name)

    found = run(cluster, work)
    assert sorted(int(record.value or b"") for part in found.values() for record in part) == list(range(2000))
    assert all(len(part) > 100 for part in found.values())


@pytest.mark.parametrize("acks", [0, 1])
def test_weaker_acks_deliver_too(cluster: str, topic_name: str, acks: int) -> None:
    async def work(client: Client) -> int:
        await Topics(client).create(topic_name, partitions=1)
        async with Producer(client, acks=acks) as producer:
            offset = (await producer.send(topic_name, b"x")).offset
        deadline = time.monotonic() + 10
        partition = TopicPartition(topic_name, 0)
        while (await resolve_offsets(client, [partition], End()))[partition] < 1:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        return offset

    assert run(cluster, work) == (-1 if acks == 0 else 0)


def test_a_topic_is_created_by_the_first_record(cluster: str, topic_name: str) -> None:
    async def work(client: Client) -> int:
        async with Producer(client) as producer:
            return (await producer.send(topic_name, b"x")).offset

    assert run(cluster, work) == 0


def test_a_record_that_the_broker_refuses_fails_alone(cluster: str, topic_name: str) -> None:
    async def work(client: Client) -> list[bytes | None]:
        await Topics(client).create(topic_name, partitions=1, configs={"max.message.bytes": "2000"})
        async with Producer(client, batch_size=1000, linger_ms=0) as producer:
            before = producer.post(topic_name, b"before")
            large = producer.post(topic_name, b"x" * 5000)
            after = producer.post(topic_name, b"after")
            with pytest.raises(KafkaError) as caught:
                await producer.flush()
            assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
            with pytest.raises(KafkaError):
                await large
            assert [(await before).offset, (await after).offset] == [0, 1]
            await producer.flush()
        return [record.value for record in (await read_all(client, topic_name))[0]]

    assert run(cluster, work) == [b"before", b"after"]


def test_places_become_offsets(cluster: str, topic_name: str) -> None:
    async def work(client: Client) -> None:
        await Topics(client).create(topic_name, partitions=1)
        async with Producer(client) as producer:
            for number in range(10):
                await producer.send(topic_name, b"x", timestamp=1_000_000 + 1000 * number)
        partition = TopicPartition(topic_name, 0)

        async def offset(place: object) -> int:
            return (await resolve_offsets(client, [partition], place))[partition]  # type: ignore[arg-type]

        assert await offset(Beginning()) == 0
        assert await offset(End()) == 10
        assert await offset(Last(3)) == 7
        assert await offset(Last(30)) == 0
        assert await offset(Absolute(4)) == 4
        assert await offset(Since(1_004_500)) == 5
        assert await offset(Since(2_000_000)) == 10
        found = await list_offsets(client, {partition: MAX_TIMESTAMP})
        assert found[partition] == (9, 1_009_000)

    run(cluster, work)


def test_a_topic_lives_and_dies(cluster: str, topic_name: str) -> None:
    async def work(client: Client) -> None:
        created = await Topics(client).create(topic_name, partitions=2, configs={"retention.ms": "1000000"})
        assert (created.partitions, created.replication_factor) == (2, 1)
        with pytest.raises(KafkaError) as caught:
            await Topics(client).create(topic_name)
        assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS

        async def is_listed() -> bool:
            return topic_name in [topic.name for topic in await Topics(client).list()]

        await comes_to(is_listed, True)
        await Partitions(client).create(topic_name, 4)
        with pytest.raises(KafkaError) as caught:
            await Partitions(client).create(topic_name, 3)
        assert caught.value.code is ErrorCode.INVALID_PARTITIONS

        await Configs(client).alter(
            ResourceType.TOPIC, topic_name, set_={"segment.bytes": "2000000"}, delete=["retention.ms"]
        )

        async def own() -> dict[str, str | None]:
            entries = await Configs(client).describe(ResourceType.TOPIC, topic_name)
            return {entry.name: entry.value for entry in entries.values() if entry.source is ConfigSource.TOPIC}

        changed: dict[str, str | None] = {"segment.bytes": "2000000"}
        await comes_to(own, changed)
        with pytest.raises(KafkaError, match=r"no\.such\.key"):
            await Configs(client).alter(ResourceType.TOPIC, topic_name, set_={"no.such.key": "1"})

        async with Producer(client) as producer:
            for _ in range(10):
                await producer.send(topic_name, b"x", partition=3)
        partition = TopicPartition(topic_name, 3)
        assert await Records(client).delete({partition: 6}) == {partition: 6}
        with pytest.raises(KafkaError) as caught:
            await Records(client).delete({partition: 60})
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        states = await Partitions(client).states(await Topics(client).describe(topic_name))
        assert [(state.log_start_offset, state.end_offset) for state in states] == [(0, 0), (0, 0), (0, 0), (6, 10)]

        await Topics(client).delete(topic_name)
        with pytest.raises(KafkaError, match="does not exist"):
            await Topics(client).delete(topic_name)

    run(cluster, work)


def test_validation_creates_nothing(cluster: str, topic_name: str) -> None:
    async def work(client: Client) -> list[str]:
        await Topics(client).create(topic_name, partitions=1, validate_only=True)
        return [topic.name for topic in await Topics(client).list()]

    assert topic_name not in run(cluster, work)


def test_the_cluster_describes_itself(cluster: str) -> None:
    description = run(cluster, lambda client: Cluster(client).describe())
    assert [broker.address.port for broker in description.brokers] == [int(cluster.rpartition(":")[2])]
    assert description.cluster_id


def test_the_state_of_a_cluster_is_told_and_replicas_cannot_go_nowhere(cluster: str, topic_name: str) -> None:
    first = TopicPartition(topic_name, 0)

    async def work(client: Client) -> None:
        await Topics(client).create(topic_name, partitions=3, configs={"min.insync.replicas": "2"})
        async with Producer(client) as producer:
            await producer.send(topic_name, b"x" * 1000, partition=0)
        state = await look(client)
        here = state.alive[0]
        assert (state.alive, state.missing, state.moves) == ([here], [], [])
        assert [state.partitions[first].replicas, state.partitions[first].isr] == [(here,), (here,)]
        min_isr = await min_in_sync(client, state)
        assert min_isr[topic_name] == 2
        assert health(state, min_isr)["healthy"]
        copies = await measure(client, {first: (here,)}, {first: here})
        assert copies.bytes_of([first]) > 1000
        assert await copies.copied_bytes(client, {first}) == copies.bytes_of([first])

        with pytest.raises(PartlyFailed) as refused:
            await Reassignments(client).alter({first: (12345,)})
        assert refused.value.errors[first].code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        with pytest.raises(PartlyFailed) as refused:
            await Reassignments(client).cancel([first])
        assert refused.value.errors[first].code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert await Elections(client).preferred([first]) == {first: False}

    run(cluster, work)


def test_an_offset_that_is_not_there_is_an_error_that_names_it(cluster: str, topic_name: str) -> None:
    async def work(client: Client) -> None:
        await Topics(client).create(topic_name, partitions=1)
        async with Consumer(client, auto_offset_reset="none") as consumer:
            consumer.assign({TopicPartition(topic_name, 0): 12345})
            with pytest.raises(KafkaError, match="12345") as caught:
                await consumer.poll(timeout_ms=20_000)
            assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    run(cluster, work)


def test_a_cancelled_poll_loses_nothing(cluster: str, topic_name: str) -> None:
    async def work(client: Client) -> list[bytes | None]:
        await Topics(client).create(topic_name, partitions=1)
        found: list[bytes | None] = []

        async def produce(producer: Producer) -> None:
            for number in range(100):
                await producer.send(topic_name, b"%d" % number)

        async with Producer(client, linger_ms=0) as producer, Consumer(client) as consumer:
            consumer.assign({TopicPartition(topic_name, 0): 0})
            producing = asyncio.create_task(produce(producer))
            while len(found) < 100:
                try:
                    async with asyncio.timeout(0.003):
                        found += [record.value for record in await consumer.poll()]
                except TimeoutError:
                    pass
            await producing
        return found

    assert run(cluster, work) == [b"%d" % number for number in range(100)]


def test_read_committed_leaves_aborted_records_out(kafka: Broker, topic_name: str) -> None:
    run(kafka.address, lambda client: Topics(client).create(topic_name, partitions=1))
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.address, "transactional.id": topic_name})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic_name, b"%d" % number)
        if number % 3 == 1:
            producer.flush(60)
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)

    def values(isolation: Isolation) -> list[bytes | None]:
        found = run(kafka.address, lambda client: read_all(client, topic_name, isolation_level=isolation))
        return [record.value for record in found[0]]

    assert values(Isolation.READ_COMMITTED) == [b"0", b"2", b"3", b"5"]
    assert values(Isolation.READ_UNCOMMITTED) == [b"0", b"1", b"2", b"3", b"4", b"5"]
