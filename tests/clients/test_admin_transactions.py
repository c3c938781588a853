"""Transactions and producers as the admin tells and ends them, with librdkafka's producers in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import pytest

from barnabas import Admin, KafkaError, TopicPartition
from barnabas.client.admin.transactions import TransactionState
from barnabas.client.list_offsets import LATEST, Isolation
from barnabas.core.errors import ErrorCode
from tests.clients.admin_work import administer, comes_to, led_partitions
from tests.peers import eventually


@contextmanager
def open_transaction(address: str, name: str) -> Iterator[confluent_kafka.Producer]:
    """A producer with one record in an open transaction; its topic and its transactional id have the same name."""
    administer(address, lambda admin: admin.topics.create(name, partitions=1))
    eventually(lambda: led_partitions(address, name) > 0, True)
    settings = {"bootstrap.servers": address, "transactional.id": name, "log_level": 0}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"open")
    assert producer.flush(60) == 0
    yield producer


def test_an_open_transaction_is_listed_and_described(cluster: str, topic_name: str) -> None:
    partition = TopicPartition(topic_name, 0)

    async def work(admin: Admin) -> None:
        found = await admin.transactions.describe(topic_name)
        assert (found.transactional_id, found.state) == (topic_name, TransactionState.ONGOING)
        assert (found.partitions, found.timeout_ms) == ((partition,), 60_000)
        assert (found.start_time_ms or 0) > 0

        async def listed(**filters: Any) -> bool:
            return topic_name in [each.transactional_id for each in await admin.transactions.list(**filters)]

        assert await listed()
        assert await listed(states=[TransactionState.ONGOING], producer_ids=[found.producer_id])
        assert not await listed(states=[TransactionState.COMPLETE_COMMIT, TransactionState.EMPTY])
        assert not await listed(older_than_ms=3_600_000)
        assert await listed(pattern=f"{topic_name[:5]}.*")
        assert not await listed(pattern="nothing-like-it")

        [writer] = await admin.producers.describe(partition)
        assert (writer.producer_id, writer.producer_epoch) == (found.producer_id, found.producer_epoch)
        assert (writer.last_sequence, writer.transaction_start_offset) == (0, 0)

    async def after(admin: Admin) -> None:
        async def state() -> TransactionState:
            return (await admin.transactions.describe(topic_name)).state

        await comes_to(state, TransactionState.COMPLETE_COMMIT)
        found = await admin.transactions.describe(topic_name)
        assert found.partitions == ()
        [writer] = await admin.producers.describe(partition)
        assert (writer.transaction_start_offset, writer.coordinator_epoch) == (None, 0)

    with open_transaction(cluster, topic_name) as producer:
        administer(cluster, work)
        producer.commit_transaction(60)
    administer(cluster, after)


def test_what_nobody_has_begun_is_not_found(cluster: str, topic_name: str) -> None:
    async def work(admin: Admin) -> None:
        with pytest.raises(KafkaError, match=f"cannot describe transaction '{topic_name}'") as caught:
            await admin.transactions.describe(topic_name)
        assert caught.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    administer(cluster, work)


def test_a_transaction_that_hangs_in_a_partition_is_aborted(cluster: str, topic_name: str) -> None:
    partition = TopicPartition(topic_name, 0)

    async def work(admin: Admin) -> None:
        async def stable() -> int:
            found = await admin.partitions.list_offsets({partition: LATEST}, Isolation.READ_COMMITTED)
            return found[partition].offset

        assert await stable() == 0
        with pytest.raises(KafkaError, match=f"no open transaction in {topic_name}-0 began at offset 5") as caught:
            await admin.transactions.abort(partition, 5)
        assert caught.value.code is ErrorCode.INVALID_TXN_STATE
        await admin.transactions.abort(partition, 0)
        await comes_to(stable, 2)
        [writer] = await admin.producers.describe(partition)
        assert writer.transaction_start_offset is None

    with open_transaction(cluster, topic_name):
        administer(cluster, work)


def test_a_fenced_producer_can_write_no_more(cluster: str, topic_name: str) -> None:
    async def work(admin: Admin) -> None:
        before = await admin.transactions.describe(topic_name)
        fenced = await admin.transactions.fence(topic_name)
        assert (fenced.producer_id, fenced.producer_epoch > before.producer_epoch) == (before.producer_id, True)

        async def state() -> TransactionState:
            return (await admin.transactions.describe(topic_name)).state

        await comes_to(state, TransactionState.EMPTY)

    with open_transaction(cluster, topic_name) as producer:
        administer(cluster, work)
        with pytest.raises(confluent_kafka.KafkaException) as caught:
            producer.commit_transaction(60)
        assert caught.value.args[0].code() == confluent_kafka.KafkaError._FENCED
