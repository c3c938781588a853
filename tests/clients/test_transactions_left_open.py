"""A producer leaves its transaction open and another ends it, on Barnabas and on Apache Kafka, in both versions of the
protocol; librdkafka, which reads only what is committed, is the judge."""

from __future__ import annotations

import pytest

import barnabas.client.admin.transactions
import barnabas.client.produce.transactions
from barnabas import Admin, KafkaError, NoTransaction, OpenTransaction, Producer, sync
from barnabas.client.admin.transactions import TransactionState
from barnabas.core.errors import ErrorCode
from tests.clients.admin_work import administer
from tests.clients.test_transactions_of_producers import committed, run


@pytest.fixture(params=[1, 2], autouse=True)
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    if request.param == 1:
        monkeypatch.setattr(barnabas.client.produce.transactions, "_FEATURE", "a feature that no cluster has")
        monkeypatch.setattr(barnabas.client.admin.transactions, "_EPOCH_PER_TRANSACTION", 9)
    return int(request.param)


def left_open(address: str, topic: str, value: bytes, name: str = "") -> OpenTransaction:
    """A transaction with one record in it, whose producer is gone."""
    with sync.Producer(address, transactional_id=f"left-{topic}{name}") as producer, producer.transaction() as block:
        producer.post(topic, value)
        left = block.leave_open()
    assert left is not None
    return left


def test_what_was_left_open_is_committed_or_aborted_by_somebody_else(cluster: str, topic_name: str) -> None:
    kept = left_open(cluster, topic_name, b"kept", "-a")
    dropped = left_open(cluster, topic_name, b"dropped", "-b")

    async def work(admin: Admin) -> None:
        for left in (kept, dropped):
            found = await admin.transactions.describe(left.transactional_id)
            assert found.state is TransactionState.ONGOING
            assert (found.producer_id, found.producer_epoch) == (left.producer_id, left.producer_epoch)
        await admin.transactions.end(dropped, commit=False)
        await admin.transactions.end_many([kept], commit=True)
        await admin.transactions.end_many([kept], commit=True)  # who has lost the answer asks again
        with pytest.raises(KafkaError) as caught:
            await admin.transactions.end(kept, commit=False)
        assert caught.value.code is ErrorCode.INVALID_TXN_STATE

    administer(cluster, work)
    assert committed(cluster, topic_name, 1) == [b"kept"]


def test_who_has_taken_over_the_id_shuts_out_the_end_of_the_former_transaction(cluster: str, topic_name: str) -> None:
    former = left_open(cluster, topic_name, b"former")
    later = left_open(cluster, topic_name, b"later")

    async def work(admin: Admin) -> None:
        with pytest.raises(KafkaError) as caught:
            await admin.transactions.end(former, commit=True)
        assert caught.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
        await admin.transactions.end(later, commit=True)

    administer(cluster, work)
    assert committed(cluster, topic_name, 1) == [b"later"]


def test_a_producer_that_has_left_its_transaction_open_is_done(cluster: str, topic_name: str) -> None:
    async def work() -> None:
        async with Producer(cluster, transactional_id=topic_name) as producer:
            async with producer.transaction() as block:
                assert await block.leave_open() is None  # for nothing was sent
            async with producer.transaction() as block:
                await producer.send(topic_name, b"value")
                assert await block.leave_open() is not None
                with pytest.raises(NoTransaction, match="has left its transaction open"):
                    producer.post(topic_name, b"more")
                with pytest.raises(NoTransaction, match="is not open"):
                    await block.leave_open()
            with pytest.raises(NoTransaction, match="has left its transaction open"):
                await producer.transaction().__aenter__()

    run(work())
