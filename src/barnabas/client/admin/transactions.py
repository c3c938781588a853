"""Transactions: which there are, what they hold, how to end one that hangs, and how to shut a producer out."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from barnabas.client.admin.features import Features
from barnabas.client.admin.producers import Producers
from barnabas.client.client import Client
from barnabas.client.errors import refused
from barnabas.client.metadata import TopicPartition
from barnabas.client.outcomes import alone, refusal, settled
from barnabas.client.produce.open_transaction import OpenTransaction
from barnabas.client.routes import BROKERS, LEADERS, TRANSACTIONS, ask, ask_singly, serving_brokers
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k22_init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.k26_end_txn import EndTxnRequest
from barnabas.wire.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.wire.messages.k65_describe_transactions import DescribeTransactionsRequest
from barnabas.wire.messages.k66_list_transactions import ListTransactionsRequest

_SHORTEST_TIMEOUT_MS = 1
_EPOCH_PER_TRANSACTION = 2
"""The level of the feature transaction.version from which on an end gives the next epoch (KIP-890)."""
_LAST_WITHOUT = 4
"""The newest EndTxn that means what it meant before."""


class TransactionState(StrEnum):
    UNKNOWN = "Unknown"
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    DEAD = "Dead"

    @classmethod
    def _missing_(cls, value: object) -> TransactionState:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class TransactionListing:
    transactional_id: str
    producer_id: int
    state: TransactionState


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    transactional_id: str
    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None
    """When the latest one began; None if none ever has."""
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class FencedProducer:
    """What a transactional id has now; whoever wrote under an older epoch is refused."""

    producer_id: int
    producer_epoch: int


class Transactions:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def list(
        self,
        *,
        states: Iterable[TransactionState] = (),
        producer_ids: Iterable[int] = (),
        older_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids of all brokers by name; each filter leaves some out.

        `pattern` is RE2 and has to match the whole id; `older_than_ms` looks at how long a transaction is open.
        """
        request = ListTransactionsRequest(
            [str(state) for state in states],
            list(producer_ids),
            -1 if older_than_ms is None else older_than_ms,
            pattern,
        )
        brokers = await serving_brokers(self._client)
        answers = settled(await ask_singly(self._client, BROKERS, brokers, lambda _: request, _read_listings))
        found = {listing.transactional_id: listing for listings in answers.values() for listing in listings}
        return [found[transactional_id] for transactional_id in sorted(found)]

    async def describe(self, transactional_id: str) -> TransactionDescription:
        return (await alone(self.describe_many([transactional_id])))[transactional_id]

    async def describe_many(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        return settled(
            await ask(self._client, TRANSACTIONS, transactional_ids, DescribeTransactionsRequest, _read_descriptions)
        )

    async def end(self, transaction: OpenTransaction, *, commit: bool) -> None:
        """Commit or abort what its producer has left open. To do the same once more is no error, until its
        transactional id is used again."""
        await alone(self.end_many([transaction], commit=commit))

    async def end_many(self, transactions: Iterable[OpenTransaction], *, commit: bool) -> None:
        wanted = {transaction.transactional_id: transaction for transaction in transactions}
        if not wanted:
            return
        version = (await Features(self._client).describe()).get("transaction.version")
        highest = None if version is not None and version.level >= _EPOCH_PER_TRANSACTION else _LAST_WITHOUT

        def request(transactional_id: str) -> EndTxnRequest:
            left = wanted[transactional_id]
            return EndTxnRequest(transactional_id, left.producer_id, left.producer_epoch, commit)

        settled(await ask_singly(self._client, TRANSACTIONS, wanted, request, _read_end, highest=highest))

    async def abort(self, partition: TopicPartition, start_offset: int) -> None:
        """End a transaction that its coordinator has forgotten, and that keeps read-committed readers waiting.

        The transaction is the one that began at `start_offset` (`admin.producers.describe` tells it).
        """
        found = await Producers(self._client).describe(partition)
        hanging = next((each for each in found if each.transaction_start_offset == start_offset), None)
        if hanging is None:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, f"no open transaction in {partition} began at offset {start_offset}"
            )
        marker = WritableTxnMarker(
            producer_id=hanging.producer_id,
            producer_epoch=hanging.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(partition.topic, [partition.partition])],
            coordinator_epoch=max(hanging.coordinator_epoch, 0),
        )
        request = WriteTxnMarkersRequest([marker])
        await alone(self._write_markers(partition, request))

    async def _write_markers(self, partition: TopicPartition, markers: WriteTxnMarkersRequest) -> None:
        settled(await ask(self._client, LEADERS, [partition], lambda _: markers, _read_markers))

    async def fence(self, transactional_id: str) -> FencedProducer:
        """Shut out whoever writes under a transactional id, and abort what it has open."""
        return (await alone(self.fence_many([transactional_id])))[transactional_id]

    async def fence_many(self, transactional_ids: Iterable[str]) -> dict[str, FencedProducer]:
        def request(transactional_id: str) -> InitProducerIdRequest:
            return InitProducerIdRequest(transactional_id, _SHORTEST_TIMEOUT_MS)

        return settled(await ask_singly(self._client, TRANSACTIONS, transactional_ids, request, _read_fenced))


def _read_listings(response: Any) -> list[TransactionListing]:
    if response.error_code:
        raise refused(response.error_code, "cannot list transactions")
    return [
        TransactionListing(found.transactional_id, found.producer_id, TransactionState(found.transaction_state))
        for found in response.transaction_states
    ]


def _read_descriptions(response: Any) -> dict[str, TransactionDescription | KafkaError]:
    return {
        found.transactional_id: refusal(found.error_code, f"cannot describe transaction {found.transactional_id!r}")
        or TransactionDescription(
            found.transactional_id,
            TransactionState(found.transaction_state),
            found.producer_id,
            found.producer_epoch,
            found.transaction_timeout_ms,
            found.transaction_start_time_ms if found.transaction_start_time_ms >= 0 else None,
            tuple(sorted(TopicPartition(topic.topic, index) for topic in found.topics for index in topic.partitions)),
        )
        for found in response.transaction_states
    }


def _read_markers(response: Any) -> dict[TopicPartition, KafkaError | None]:
    return {
        partition: refusal(found.error_code, f"cannot abort the transaction in {partition}")
        for marker in response.markers
        for topic in marker.topics
        for found in topic.partitions
        for partition in (TopicPartition(topic.name, found.partition_index),)
    }


def _read_end(response: Any) -> None:
    if response.error_code:
        raise refused(response.error_code, "cannot end the transaction")


def _read_fenced(response: Any) -> FencedProducer:
    if response.error_code:
        raise refused(response.error_code, "cannot fence producers")
    return FencedProducer(response.producer_id, response.producer_epoch)
