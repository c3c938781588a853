"""Transactions on Barnabas and on Apache Kafka; librdkafka, which reads only what is committed, is the judge."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

import barnabas.client.produce.transactions
from barnabas import (
    Admin,
    Consumer,
    GroupMetadata,
    KafkaError,
    NoTransaction,
    OffsetAndMetadata,
    OutcomeUnknown,
    Producer,
    ProducerFenced,
    ProducerUnusable,
    TopicPartition,
    TransactionAborted,
)
from barnabas.client.produce.transaction_state import Phase
from tests.clients.programs import interrupt_after, started
from tests.peers import BarnabasServer


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work

    asyncio.run(bounded())


def committed(address: str, topic: str, count: int, isolation: str = "read_committed") -> list[bytes | None]:
    """The values of a topic's partition 0 as others see them, once there are so many, and a moment later."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "unused",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found: list[bytes | None] = []
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            for message in consumer.consume(1000, timeout=0.3):
                assert message.error() is None, message.error()
                found.append(message.value())
            if len(found) >= count:
                deadline = min(deadline, time.monotonic() + 0.3)
        return found
    finally:
        consumer.close()


def committed_offset(address: str, group: str, topic: str) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": group})
    try:
        (place,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=60)
        return int(place.offset)
    finally:
        consumer.close()


@pytest.fixture(params=[1, 2])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Both ways to write: as on a cluster that has transaction.version 2, and as on one that has not."""
    if request.param == 1:
        monkeypatch.setattr(barnabas.client.produce.transactions, "_FEATURE", "a feature that no cluster has")
    return int(request.param)


@asynccontextmanager
async def transactional(address: str, topic: str, **options: Any) -> AsyncIterator[Producer]:
    async with Producer(address, transactional_id=f"of-{topic}", **options) as producer:
        yield producer


def test_what_is_committed_is_seen_and_what_is_aborted_is_not(cluster: str, topic_name: str, version: int) -> None:
    async def fails(producer: Producer) -> None:
        async with producer.transaction():
            await producer.send(topic_name, b"dropped")
            producer.post(topic_name, b"dropped unsent")
            raise ZeroDivisionError

    async def work() -> None:
        async with transactional(cluster, topic_name) as producer:
            assert producer._transactions is not None
            for number in range(3):
                async with producer.transaction():
                    await producer.send(topic_name, b"kept-%d" % number)
                    producer.post(topic_name, b"kept too")
                assert producer._transactions.state.version == version
                with pytest.raises(ZeroDivisionError):
                    await fails(producer)
            async with producer.transaction():
                pass

    run(work())
    expected = [value for number in range(3) for value in (b"kept-%d" % number, b"kept too")]
    assert committed(cluster, topic_name, 6) == expected
    assert b"dropped" in committed(cluster, topic_name, 9, "read_uncommitted")


def test_offsets_are_committed_with_the_records_or_not_at_all(cluster: str, topic_name: str, version: int) -> None:
    source, group = f"{topic_name}-in", f"g-{topic_name}"

    async def fails(producer: Producer, consumer: Consumer) -> None:
        async with producer.transaction() as txn:
            await producer.send(topic_name, b"dropped")
            await txn.send_offsets(consumer)
            raise ZeroDivisionError

    async def work() -> None:
        async with Producer(cluster) as feeding:
            await feeding.send_many(source, [b"%d" % number for number in range(10)])
        async with (
            Consumer(
                cluster, topics=[source], group=group, enable_auto_commit=False, auto_offset_reset="earliest"
            ) as consumer,
            transactional(cluster, topic_name) as producer,
        ):
            records = await consumer.poll(max_records=4, timeout_ms=20_000)
            with pytest.raises(ZeroDivisionError):
                await fails(producer, consumer)
            assert await consumer.committed() == {TopicPartition(source, 0): None}
            async with producer.transaction() as txn:
                await producer.send_many(topic_name, [b"of " + record.value for record in records])
                await txn.send_offsets(consumer)
            assert committed_offset(cluster, group, source) == len(records)
            async with producer.transaction() as txn:
                await txn.send_offsets({TopicPartition(source, 0): OffsetAndMetadata(9)}, consumer.group_metadata())

    run(work())
    assert committed(cluster, topic_name, 4) == [b"of %d" % number for number in range(4)]
    assert committed_offset(cluster, group, source) == 9


def test_offsets_of_a_member_that_its_group_left_behind_abort_the_transaction(cluster: str, topic_name: str) -> None:
    stranger = GroupMetadata(f"g-{topic_name}", "nobody-knows-me", 5)

    async def fails(producer: Producer) -> None:
        async with producer.transaction() as txn:
            await producer.send(topic_name, b"dropped")
            await txn.send_offsets({TopicPartition(topic_name, 0): OffsetAndMetadata(1)}, stranger)

    async def work() -> None:
        async with transactional(cluster, topic_name) as producer:
            async with producer.transaction():
                await producer.send(topic_name, b"kept")
            with pytest.raises(KafkaError, match="the records may be somebody else's by now"):
                await fails(producer)
            async with producer.transaction():
                await producer.send(topic_name, b"kept")

    run(work())
    assert committed(cluster, topic_name, 2) == [b"kept", b"kept"]


def test_a_newer_producer_fences_the_older_one(cluster: str, topic_name: str, version: int) -> None:
    async def is_overtaken(old: Producer) -> None:
        async with old.transaction():
            await old.send(topic_name, b"a zombie's")
            async with transactional(cluster, topic_name) as new:
                async with new.transaction():
                    await new.send(topic_name, b"kept")
                await old.send(topic_name, b"a zombie's too")

    async def work() -> None:
        async with transactional(cluster, topic_name) as old:
            with pytest.raises(ProducerFenced, match="another producer with this transactional_id has taken over"):
                await is_overtaken(old)
            with pytest.raises(ProducerFenced, match="close it and make a new one"):
                async with old.transaction():
                    pytest.fail("a fenced producer began a transaction")

    run(work())
    assert committed(cluster, topic_name, 1) == [b"kept"]


def test_a_commit_of_a_fenced_producer_fails(cluster: str, topic_name: str, version: int) -> None:
    async def is_overtaken(old: Producer) -> None:
        async with old.transaction():
            await old.send(topic_name, b"a zombie's")
            async with transactional(cluster, topic_name):
                pass

    async def work() -> None:
        async with transactional(cluster, topic_name) as old:
            with pytest.raises(ProducerFenced) as caught:
                await is_overtaken(old)
            assert not caught.value.retriable

    run(work())
    assert committed(cluster, topic_name, 0) == []


def test_a_crash_in_a_transaction_leaves_nothing_and_the_next_process_goes_on(cluster: str, topic_name: str) -> None:
    program = """
        async def main():
            async with Producer(address, transactional_id="of-" + topic) as producer:
                async with producer.transaction():
                    await producer.send(topic, b"kept")
                async with producer.transaction():
                    await producer.send(topic, b"lost in the crash")
                    print("in it", flush=True)
                    await asyncio.sleep(60)
        """
    with started(program, cluster, topic_name) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in it\n"
        process.send_signal(signal.SIGKILL)
        process.wait(60)

    async def work() -> None:
        async with transactional(cluster, topic_name) as producer, producer.transaction():
            await producer.send(topic_name, b"after it")

    run(work())
    assert committed(cluster, topic_name, 2) == [b"kept", b"after it"]


def test_ctrl_c_aborts_so_that_readers_need_not_wait(cluster: str, topic_name: str) -> None:
    program = """
        async def main():
            async with Producer(address, transactional_id="of-" + topic) as producer:
                async with producer.transaction():
                    await producer.send(topic, b"dropped")
                    print("in it", flush=True)
                    await asyncio.sleep(60)
        """
    interrupt_after("in it", program, cluster, topic_name)

    async def work() -> None:
        async with Producer(cluster) as producer:
            await producer.send(topic_name, b"of another")

    run(work())
    assert committed(cluster, topic_name, 1) == [b"of another"]


def test_a_record_that_fails_unseen_aborts_the_whole(cluster: str, topic_name: str) -> None:
    async def fails(producer: Producer) -> None:
        async with producer.transaction():
            await producer.send(topic_name, b"dropped")
            producer.post(topic_name, bytes(5000))

    async def work() -> None:
        async with Admin(cluster) as admin:
            await admin.topics.create(topic_name, partitions=1, configs={"max.message.bytes": "1000"})
        async with transactional(cluster, topic_name) as producer:
            with pytest.raises(TransactionAborted, match=r"cannot be committed: .*max\.message\.bytes"):
                await fails(producer)
            async with producer.transaction():
                await producer.send(topic_name, b"kept")

    run(work())
    assert committed(cluster, topic_name, 1) == [b"kept"]


def test_a_record_that_fails_makes_the_rest_of_the_block_fail(cluster: str, topic_name: str) -> None:
    async def goes_on(producer: Producer) -> None:
        async with producer.transaction():
            with pytest.raises(KafkaError, match=r"max\.message\.bytes"):
                await producer.send(topic_name, bytes(5000))
            with pytest.raises(TransactionAborted):
                await producer.send(topic_name, b"too late")

    async def work() -> None:
        async with Admin(cluster) as admin:
            await admin.topics.create(topic_name, partitions=1, configs={"max.message.bytes": "1000"})
        async with transactional(cluster, topic_name) as producer:
            with pytest.raises(TransactionAborted):
                await goes_on(producer)

    run(work())
    assert committed(cluster, topic_name, 0) == []


def test_use_outside_of_a_transaction_is_an_error(cluster: str, topic_name: str) -> None:
    async def work() -> None:
        async with Producer(cluster) as plain:
            with pytest.raises(NoTransaction, match=r"make it with Producer\(\.\.\., transactional_id="):
                plain.transaction()
        async with transactional(cluster, topic_name) as producer:
            with pytest.raises(NoTransaction, match="inside of `async with producer"):
                producer.post(topic_name, b"")
            with pytest.raises(NoTransaction, match="inside of `async with producer"):
                await producer.send_columns(topic_name, None)
            async with producer.transaction() as txn:
                with pytest.raises(NoTransaction, match="one at a time"):
                    async with producer.transaction():
                        pytest.fail("a transaction began inside another")
            with pytest.raises(NoTransaction, match="inside of its block"):
                await txn.send_offsets({TopicPartition(topic_name, 0): OffsetAndMetadata(1)}, GroupMetadata("g"))

    run(work())


def test_a_time_out_that_the_cluster_does_not_allow_is_said_at_the_start(cluster: str, topic_name: str) -> None:
    async def work() -> None:
        with pytest.raises(ProducerUnusable, match="transaction_timeout_ms is beyond the cluster's"):
            async with transactional(cluster, topic_name, transaction_timeout_ms=2**31 - 1):
                pytest.fail("it was entered")

    run(work())


def test_two_tasks_cannot_share_a_transaction_by_accident(cluster: str, topic_name: str, version: int) -> None:
    async def fails(producer: Producer) -> None:
        async with producer.transaction():
            await producer.send(topic_name, b"dropped")
            raise ZeroDivisionError

    async def work() -> None:
        async with transactional(cluster, topic_name) as producer:

            async def block() -> None:
                async with producer.transaction():
                    await producer.send(topic_name, b"kept")

            with pytest.raises(ZeroDivisionError):
                await fails(producer)
            outcomes = await asyncio.gather(block(), block(), return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [type(None), NoTransaction]

    run(work())
    assert committed(cluster, topic_name, 1) == [b"kept"]


def test_a_cancelled_block_is_aborted_and_a_cancelled_commit_goes_on(cluster: str, topic_name: str) -> None:
    async def work() -> None:
        async with transactional(cluster, topic_name) as producer:
            assert producer._transactions is not None
            state = producer._transactions.state

            async def block(value: bytes, seconds: float) -> None:
                async with producer.transaction():
                    producer.post(topic_name, value)
                    await asyncio.sleep(seconds)

            for value, seconds, phase in ((b"dropped", 60, Phase.OPEN), (b"kept", 0, Phase.COMMITTING)):
                task = asyncio.create_task(block(value, seconds))
                while state.phase is not phase:  # noqa: ASYNC110  # nobody tells
                    await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            async with producer.transaction():
                await producer.send(topic_name, b"kept too")

    run(work())
    assert committed(cluster, topic_name, 2) == [b"kept", b"kept too"]


def test_a_coordinator_that_restarts_or_falls_silent(tmp_path: Path, topic_name: str) -> None:
    server = BarnabasServer(tmp_path / "barnabas")
    address = server.address
    port = int(address.rpartition(":")[2])

    async def through_a_restart() -> None:
        nonlocal server
        async with transactional(address, topic_name) as producer:
            async with producer.transaction():
                await producer.send(topic_name, b"before")
                server.kill()
                server = BarnabasServer(tmp_path / "barnabas", port=port)
                await producer.send(topic_name, b"after")
            async with producer.transaction():
                await producer.send(topic_name, b"and later")

    async def is_not_answered(producer: Producer) -> None:
        async with producer.transaction():
            await producer.send(topic_name, b"who knows")
            server.process.send_signal(signal.SIGSTOP)

    async def into_silence() -> None:
        async with transactional(address, topic_name, request_timeout_ms=2000, max_block_ms=4000) as producer:
            with pytest.raises(OutcomeUnknown, match="whether its transaction is committed is not known"):
                await is_not_answered(producer)
            server.process.send_signal(signal.SIGCONT)
            with pytest.raises(OutcomeUnknown):
                async with producer.transaction():
                    pytest.fail("a producer that does not know how it ended began again")

    try:
        run(through_a_restart())
        assert committed(address, topic_name, 3) == [b"before", b"after", b"and later"]
        run(into_silence())

        async def settle() -> None:
            async with transactional(address, topic_name):
                pass

        run(settle())
        assert committed(address, topic_name, 3)[:3] == [b"before", b"after", b"and later"]
    finally:
        server.process.send_signal(signal.SIGCONT)
        server.stop()
