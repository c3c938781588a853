"""Whether a transaction knows of the partitions that it writes to (KIP-890).

A record of a transaction that its coordinator does not know of would never be ended, and hold up readers for ever. So
before the first batch of a transaction in a partition, the coordinator is asked, which may be another broker; for
clients of the second protocol, which no longer say so themselves, the partition is added to the transaction by the same
question.

The answer takes its time, and the transaction may end meanwhile. A batch that is appended after the end of its
transaction would again be one that nobody ends. So whoever asks first sets a `Guard`, and looks at it, by `refused`, in
the very step in which it appends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.coordinator.outcome import Now, Outcome, Token
    from barnabas.coordinator.transaction_shard import TransactionShard
    from barnabas.storage.producer_state import ProducerStates, Verification

_BETWEEN_BROKERS = 5  # the version of AddPartitionsToTxn that this is

PartitionKey = tuple[str, int]


class Guard(NamedTuple):
    """Stands by a batch that waits for the coordinator's answer."""

    producers: ProducerStates
    producer_id: int
    sequence: int
    verification: Verification

    @staticmethod
    def set(
        producers: ProducerStates, producer_id: int, epoch: int, sequence: int, now_ms: int, *, is_added: bool
    ) -> Guard:
        """With every transaction of the second protocol sequences begin anew, at 0."""
        first = 0 if is_added else sequence
        return Guard(producers, producer_id, sequence, producers.begin_verification(producer_id, epoch, first, now_ms))

    def check(self) -> None:
        self.producers.check_verified(self.producer_id, self.sequence, self.verification)


def refused(
    errors: dict[PartitionKey, ErrorCode], guards: Mapping[PartitionKey, Guard]
) -> dict[PartitionKey, ErrorCode]:
    """What the coordinator refused, and what came too late; true only until the next marker, that is, right now."""
    found = dict(errors)
    for partition, guard in guards.items():
        try:
            guard.check()
        except KafkaError as error:
            found.setdefault(partition, error.code)
    return found


def join_transaction(
    broker: Broker,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Iterable[PartitionKey],
    *,
    is_added: bool,
) -> asyncio.Future[dict[PartitionKey, ErrorCode]]:
    """Add partitions to a transaction, or only ask whether they are part of it; the errors, where there are any."""
    asked = list(partitions)
    by_topic: dict[str, list[int]] = {}
    for topic, index in asked:
        by_topic.setdefault(topic, []).append(index)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id,
        producer_id,
        producer_epoch,
        not is_added,
        [AddPartitionsToTxnTopic(topic, indexes) for topic, indexes in by_topic.items()],
    )
    driver = broker.transactions.loaded(transactional_id)
    if driver is None:
        return asyncio.ensure_future(_join_where_coordinated(broker, transaction, asked))
    reply = driver.execute(_added(transaction))
    errors: asyncio.Future[dict[PartitionKey, ErrorCode]] = asyncio.get_running_loop().create_future()

    def settle(done: asyncio.Future[object]) -> None:
        found = _errors_of(done, asked)  # it is looked at also if nobody waits for it any more
        if not errors.done():
            errors.set_result(found)

    if reply.done():
        settle(reply)
    else:
        reply.add_done_callback(settle)
    return errors


def _added(transaction: AddPartitionsToTxnTransaction) -> Callable[[TransactionShard, Token, Now], Outcome]:
    return lambda shard, token, now: shard.add_partitions_to_txn(transaction, _BETWEEN_BROKERS, token, now)


async def _join_where_coordinated(
    broker: Broker, transaction: AddPartitionsToTxnTransaction, asked: list[PartitionKey]
) -> dict[PartitionKey, ErrorCode]:
    """The same where the coordinator is another broker, or is still being loaded here."""
    coordinator = broker.transactions.leader_of(transaction.transactional_id)
    if coordinator not in (-1, broker.broker_id):
        return await _ask(broker, coordinator, transaction, asked)
    try:
        return _refusals(await broker.transactions.execute(transaction.transactional_id, _added(transaction)))
    except KafkaError as error:
        return dict.fromkeys(asked, error.code)


async def _ask(
    broker: Broker, coordinator: int, transaction: AddPartitionsToTxnTransaction, asked: list[PartitionKey]
) -> dict[PartitionKey, ErrorCode]:
    """Ask a coordinator that is another broker."""
    request = AddPartitionsToTxnRequest([transaction])
    try:
        response = await broker.peers.request(coordinator, request, _BETWEEN_BROKERS)
    except OSError:
        return dict.fromkeys(asked, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if response.error_code:
        return dict.fromkeys(asked, ErrorCode(response.error_code))
    return _refusals(response.results_by_transaction[0])


def _errors_of(reply: asyncio.Future[object], asked: list[PartitionKey]) -> dict[PartitionKey, ErrorCode]:
    problem = reply.exception()
    if isinstance(problem, KafkaError):
        return dict.fromkeys(asked, problem.code)
    result: Any = reply.result()
    return _refusals(result)


def _refusals(result: AddPartitionsToTxnResult) -> dict[PartitionKey, ErrorCode]:
    return {
        (topic.name, each.partition_index): ErrorCode(each.partition_error_code)
        for topic in result.topic_results
        for each in topic.results_by_partition
        if each.partition_error_code
    }
