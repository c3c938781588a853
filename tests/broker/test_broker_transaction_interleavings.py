"""Interleavings of producers, zombies and a bad network over real sockets, judged by what consumers see.

`transaction_network` says what is done; here is what must hold when all has settled. The seed decides what is sent, in
which order and on which connection, but not how the broker's work on several connections falls out.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable

import confluent_kafka
import pytest

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.wire.messages.k66_list_transactions import ListTransactionsRequest
from tests.broker.transaction_network import Network
from tests.broker.transactional import (
    GROUP,
    READ_COMMITTED,
    TRANSACTION,
    TransactionalProducer,
    committed_values,
    describe,
    find_coordinator,
    producers_of,
    settled,
)
from tests.broker.wire_client import Client
from tests.peers import Broker, eventually

NAME = "interleaved"
SEEDS_OF_A_PART = 10
PARTS = 3  # and ten in the proof
SEEDS_ON_SLOW_DISK = 4
STEPS = 300
PARTITIONS = 3
UNSETTLED = ["Ongoing", "PrepareCommit", "PrepareAbort"]


@pytest.mark.parametrize(
    "part", [*range(PARTS), *(pytest.param(part, marks=pytest.mark.proof) for part in range(PARTS, 10))]
)
def test_no_interleaving_breaks_a_transaction(broker: Broker, part: int) -> None:
    seen = _interleave(broker, range(part * SEEDS_OF_A_PART, (part + 1) * SEEDS_OF_A_PART))
    # or nothing was tried
    assert seen["committed"] > 10
    assert seen["aborted"] > 5
    assert seen["refused"] > 50
    assert seen["offsets"] > 5


def test_no_interleaving_breaks_a_transaction_where_every_step_waits_for_the_disk(
    start_broker: Callable[..., Broker],
) -> None:
    """So nothing is answered at once, and what one request waits for meets what others do."""
    _interleave(start_broker({"log.flush.interval.messages": "1"}), range(1000, 1000 + SEEDS_ON_SLOW_DISK))


def _interleave(broker: Broker, seeds: range) -> Counter[str]:
    """Run these seeds, and check what is left after each; how often things happened."""
    seen: Counter[str] = Counter()
    with Client(broker.address) as client:
        topic = client.create_topic(PARTITIONS)
        topic_id = client.topic_id(topic)
        expected: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
        for seed in seeds:
            name = f"{NAME}-{seed}-{uuid.uuid4().hex[:8]}"
            find_coordinator(client, name, TRANSACTION)
            find_coordinator(client, name, GROUP)
            network = Network(seed, broker.address, topic, topic_id, PARTITIONS, name)
            try:
                network.run(STEPS)
                closing = _close(client, name, topic)
                network.repeat()
                for partition in range(PARTITIONS):
                    expected[partition] += [*network.ledger.visible(partition), closing[partition]]
                _check_settled(client, name, topic)
                _check_records(client, topic, expected)
                assert _committed_offset(client, name, topic) == network.ledger.committed_offset()
            except Exception as error:
                error.add_note(f"seed {seed}: {network.ledger.answers}")
                raise
            finally:
                network.close()
            committed = len(network.ledger.committed())
            seen["committed"] += committed
            seen["aborted"] += len(network.ledger.ends) - committed
            seen["refused"] += sum(count for (_, code), count in network.ledger.answers.items() if code)
            seen["offsets"] += len(network.ledger.offsets)
    assert _as_consumed(broker, topic) == expected
    return seen


def _close(client: Client, name: str, topic: str) -> dict[int, bytes]:
    """The last producer of all writes to every partition and commits."""
    last = TransactionalProducer(client, name)
    values = {partition: f"{name} closes {partition}".encode() for partition in range(PARTITIONS)}
    for partition, value in values.items():
        last.write(topic, value, partition=partition)
    last.end(commit=True)
    return values


def _check_settled(client: Client, name: str, topic: str) -> None:
    """No transaction is left open, wherever one asks."""
    eventually(lambda: describe(client, name).transaction_state in UNSETTLED, False)
    listed = client.call(ListTransactionsRequest(UNSETTLED)).transaction_states
    assert name not in [transaction.transactional_id for transaction in listed]
    for partition in range(PARTITIONS):
        assert {state.current_txn_start_offset for state in producers_of(client, topic, partition).values()} == {-1}
        data = client.fetch(topic, partition=partition, isolation_level=READ_COMMITTED)
        assert data.last_stable_offset == data.high_watermark


def _check_records(client: Client, topic: str, expected: dict[int, list[bytes]]) -> None:
    """Exactly what was committed is seen, and nothing, committed or not, was written twice."""
    for partition, values in expected.items():
        assert committed_values(client, topic, partition) == values
        written = Counter(record.value for record in client.read_all(topic, partition))
        assert max(count for value, count in written.items() if (value or b"").startswith(NAME.encode())) == 1


def _committed_offset(client: Client, group: str, topic: str) -> int:
    asked = OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics(topic, partition_indexes=[0])])
    request = OffsetFetchRequest(groups=[asked], require_stable=True)
    answer = settled(lambda: client.call(request, 9).groups[0])
    (result,) = answer.topics[0].partitions
    assert result.error_code == ErrorCode.NONE
    offset: int = result.committed_offset
    return offset


def _as_consumed(broker: Broker, topic: str) -> dict[int, list[bytes]]:
    """What librdkafka makes of it all."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": f"g-{uuid.uuid4().hex[:12]}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    reading = set(found)
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in found])
        while reading:
            message = consumer.poll(60)
            assert message is not None, f"nothing came for partitions {reading}"
            partition = message.partition()
            assert partition is not None
            if message.error() is None:
                found[partition].append(message.value() or b"")
            else:
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                reading.discard(partition)
    finally:
        consumer.close()
    return found
