"""The transactional ids of one partition of `__transaction_state`: requests in, records, markers and replies out.

As every shard does, it changes at once and answers when the watermark has passed its records. The markers of an outcome
wait for the same: not before a transaction's decision is committed may a partition learn of it. The driver then has the
leaders write them, tries again for as long as it takes, and tells `markers_written` of every partition that has its
marker, or is gone; the last one completes the transaction. A shard that was just loaded hands out the markers of all
transactions that were decided but not completed, so a crash between the two is finished by whoever comes next.

A request that covers several transactional ids is taken apart by its handler, since they may belong to several shards:
AddPartitionsToTxn comes here as one `AddPartitionsToTxnTransaction` (which up to version 3 the handler makes of the
request itself) and is answered by one `AddPartitionsToTxnResult`, DescribeTransactions as one id and its
`TransactionState`, ListTransactions as a `TransactionFilter` and a list.

A producer id that is needed is taken from a callable. If it has none at hand, which should be rare, nothing changes,
and the client is told to come again: COORDINATOR_LOAD_IN_PROGRESS, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from typing import NamedTuple

from barnabas.coordinator.outcome import CoordinatorRecord, Now, Outcome, Token
from barnabas.coordinator.records import encode_record
from barnabas.coordinator.timers import Timers
from barnabas.coordinator.transaction import (
    ENDING,
    EPOCH_PER_TRANSACTION,
    IDLE,
    ONGOING,
    ProducerIdAndEpoch,
    TopicPartition,
    Transaction,
)
from barnabas.coordinator.transaction_listing import TransactionFilter, described, listed
from barnabas.coordinator.transaction_log import decode_transaction, transaction_record
from barnabas.coordinator.transaction_records import TransactionLogKey
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from barnabas.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from barnabas.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.wire.messages.k26_end_txn import EndTxnRequest, EndTxnResponse

_DUE_AT_ONCE = 100
"""Time-outs in one outcome: its records are one batch, and a batch has a limit."""
_NO_ID_RETRY_MS = 1000

# the version of each request that first knew PRODUCER_FENCED (KIP-588)
_INIT_KNOWS_FENCED = 4
_ADD_KNOWS_FENCED = _END_KNOWS_FENCED = 2
# those that imply version 2 of the transaction protocol (KIP-890)
_ADD_PARTITIONS_BY_BROKERS = 4
_END_RAISES_EPOCH = 5


class MarkerToWrite(NamedTuple):
    """What the leaders of these partitions shall write. From version 2 on, a partition takes it only from a higher
    epoch than the producer has there, unless nothing is open (KIP-1228)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int
    partitions: tuple[TopicPartition, ...]


@dataclass(slots=True)
class TransactionOutcome(Outcome):
    """Besides records and replies, markers: to be sent once the records are committed."""

    markers: list[MarkerToWrite] = field(default_factory=list)


class TransactionShard:
    __slots__ = (
        "_coordinator_epoch",
        "_id_expiration_ms",
        "_max_timeout_ms",
        "_take_producer_id",
        "_timers",
        "_transactions",
    )

    def __init__(
        self,
        coordinator_epoch: int,
        take_producer_id: Callable[[], int | None],
        *,
        max_timeout_ms: int,
        id_expiration_ms: int,
    ) -> None:
        """`coordinator_epoch` is the leader epoch of the partition of `__transaction_state`; the limits are
        `transaction.max.timeout.ms` and `transactional.id.expiration.ms`."""
        self._coordinator_epoch = coordinator_epoch
        self._take_producer_id = take_producer_id
        self._max_timeout_ms = max_timeout_ms
        self._id_expiration_ms = id_expiration_ms
        self._transactions: dict[str, Transaction] = {}
        self._timers: Timers[str] = Timers()  # of an open transaction its time-out, of an idle id its expiry

    @property
    def transactions(self) -> dict[str, Transaction]:
        """By transactional id; to be read only."""
        return self._transactions

    # loading

    def replay(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:
        """Fold one record of the log; DecodeError for one that makes no sense, which leaves the state as it was."""
        transactional_id, transaction = decode_transaction(record)
        if transaction is None:
            self._transactions.pop(transactional_id, None)
        else:
            self._transactions[transactional_id] = transaction

    def replay_end(self, producer_id: int, committed: bool) -> None:
        """Nothing: no record of this topic is part of a transaction."""

    def loaded(self, now: Now) -> TransactionOutcome:
        """Every record is replayed: clocks go on from where they stood, and what was decided is brought to its end."""
        outcome = TransactionOutcome()
        for transaction in list(self._transactions.values()):
            self._set_deadline(transaction, now)
            if transaction.state in ENDING:
                self._send_markers(transaction, now, outcome)
        return outcome

    # requests

    def init_producer_id(
        self, request: InitProducerIdRequest, version: int, token: Token, now: Now
    ) -> TransactionOutcome:
        outcome = TransactionOutcome()
        try:
            producer = self._init_producer_id(request, now, outcome)
        except KafkaError as error:
            code = _as_known(error.code, version, _INIT_KNOWS_FENCED)
            refused = InitProducerIdResponse(
                error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
            )
            return _replied(outcome, token, refused)
        return _replied(
            outcome, token, InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)
        )

    def _init_producer_id(
        self, request: InitProducerIdRequest, now: Now, outcome: TransactionOutcome
    ) -> ProducerIdAndEpoch:
        transactional_id = _non_empty(request.transactional_id)
        timeout_ms = request.transaction_timeout_ms
        if not 0 < timeout_ms <= self._max_timeout_ms:
            raise KafkaError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"a transaction may take from 1 to {self._max_timeout_ms} ms, not {timeout_ms}",
            )
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            transaction = Transaction.created(transactional_id, self._fresh_producer_id(), timeout_ms, now.wall_ms)
            self._become(transaction, now, outcome)
            return transaction.producer
        expected = None
        if request.producer_id != NO_PRODUCER_ID:
            expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        transaction.check_settled()
        transaction.check_expected(expected)
        if transaction.state is ONGOING:
            self._abort(transaction, now, outcome)
            raise KafkaError(
                ErrorCode.CONCURRENT_TRANSACTIONS,
                f"the transaction of the former producer of {transactional_id!r} is aborted first; ask again",
            )
        if transaction.is_initialised_again(expected):
            transaction = transaction.initialised_again(timeout_ms, now.wall_ms)
        elif transaction.epochs_used_up:
            transaction = transaction.rotated(self._fresh_producer_id(), timeout_ms, expected, now.wall_ms)
        else:
            transaction = transaction.initialised(timeout_ms, expected, now.wall_ms)
        self._become(transaction, now, outcome)
        return transaction.producer

    def add_partitions_to_txn(
        self, request: AddPartitionsToTxnTransaction, version: int, token: Token, now: Now
    ) -> TransactionOutcome:
        """Add the partitions, all or none, or only say which of them are part of the transaction."""
        outcome = TransactionOutcome()
        partitions = [TopicPartition(topic.name, index) for topic in request.topics for index in topic.partitions]
        codes: dict[TopicPartition, ErrorCode] = {}
        try:
            transaction = self._transaction(request.transactional_id)
            if request.verify_only:
                transaction.check_producer(request.producer_id, request.producer_epoch)
                transaction.check_settled()
                absent = set(partitions) - transaction.partitions
                codes = dict.fromkeys(absent, ErrorCode.TRANSACTION_ABORTABLE)
            else:
                protocol = EPOCH_PER_TRANSACTION if version >= _ADD_PARTITIONS_BY_BROKERS else 0
                self._add(transaction, request.producer_id, request.producer_epoch, partitions, protocol, now, outcome)
        except KafkaError as error:
            codes = dict.fromkeys(partitions, _as_known(error.code, version, _ADD_KNOWS_FENCED))
        results = [
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index,
                        partition_error_code=codes.get(TopicPartition(topic.name, index), ErrorCode.NONE),
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return _replied(
            outcome, token, AddPartitionsToTxnResult(transactional_id=request.transactional_id, topic_results=results)
        )

    def add_offsets_to_txn(
        self, request: AddOffsetsToTxnRequest, version: int, offsets: TopicPartition, token: Token, now: Now
    ) -> TransactionOutcome:
        """`offsets` is the partition of `__consumer_offsets` that the request's group belongs to."""
        outcome = TransactionOutcome()
        code = ErrorCode.NONE
        try:
            transaction = self._transaction(request.transactional_id)
            self._add(transaction, request.producer_id, request.producer_epoch, [offsets], 0, now, outcome)
        except KafkaError as error:
            code = _as_known(error.code, version, _ADD_KNOWS_FENCED)
        return _replied(outcome, token, AddOffsetsToTxnResponse(error_code=code))

    def _add(
        self,
        transaction: Transaction,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        protocol: int,
        now: Now,
        outcome: TransactionOutcome,
    ) -> None:
        transaction.check_settled()
        transaction.check_producer(producer_id, producer_epoch)
        added = frozenset(partitions)
        if transaction.state is not ONGOING or not added <= transaction.partitions:
            self._become(transaction.with_partitions(added, protocol, now.wall_ms), now, outcome)

    def end_txn(self, request: EndTxnRequest, version: int, token: Token, now: Now) -> TransactionOutcome:
        outcome = TransactionOutcome()
        protocol = EPOCH_PER_TRANSACTION if version >= _END_RAISES_EPOCH else 0
        commit = request.committed
        try:
            transaction = self._transaction(request.transactional_id)
            producer = transaction.producer
            if transaction.is_end_decided_now(request.producer_id, request.producer_epoch, commit, protocol):
                next_producer_id = NO_PRODUCER_ID
                if protocol >= EPOCH_PER_TRANSACTION and transaction.epochs_used_up:
                    next_producer_id = self._fresh_producer_id()
                transaction = transaction.decided(commit, protocol, next_producer_id, now.wall_ms)
                producer = transaction.producer_after_end
                self._decide(transaction, now, outcome)
        except KafkaError as error:
            return _replied(
                outcome, token, EndTxnResponse(error_code=_as_known(error.code, version, _END_KNOWS_FENCED))
            )
        if protocol < EPOCH_PER_TRANSACTION:
            return _replied(outcome, token, EndTxnResponse())
        return _replied(outcome, token, EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch))

    def describe_transaction(self, transactional_id: str, token: Token) -> TransactionOutcome:
        return _replied(
            TransactionOutcome(), token, described(transactional_id, self._transactions.get(transactional_id))
        )

    def list_transactions(self, wanted: TransactionFilter, token: Token, now: Now) -> TransactionOutcome:
        found = [listed(each) for each in self._transactions.values() if wanted.takes(each, now.wall_ms)]
        return _replied(TransactionOutcome(), token, found)

    # markers

    def markers_written(
        self, marker: MarkerToWrite, partitions: Iterable[TopicPartition], now: Now
    ) -> TransactionOutcome:
        """These partitions of the marker have it, or are gone. Told late or twice, it changes nothing."""
        outcome = TransactionOutcome()
        transaction = self._transactions.get(marker.transactional_id)
        if (
            transaction is not None
            and transaction.state in ENDING
            and transaction.producer == (marker.producer_id, marker.producer_epoch)
        ):
            transaction = transaction.without_partitions(frozenset(partitions))
            self._transactions[marker.transactional_id] = transaction
            if not transaction.partitions:
                self._become(transaction.completed(now.wall_ms), now, outcome)
        return outcome

    # time

    @property
    def next_deadline_ms(self) -> int | None:
        return self._timers.next_deadline_ms

    def expire(self, now: Now) -> TransactionOutcome:
        """Abort the transactions that took too long, and forget the transactional ids that nobody used for long."""
        outcome = TransactionOutcome()
        for count, transactional_id in enumerate(self._timers.take_due(now.monotonic_ms)):
            if count >= _DUE_AT_ONCE:
                self._timers.set(transactional_id, now.monotonic_ms + count // _DUE_AT_ONCE)
                continue
            transaction = self._transactions[transactional_id]
            if transaction.state is ONGOING:
                try:
                    self._abort(transaction, now, outcome)
                except KafkaError:  # no producer id at hand
                    self._timers.set(transactional_id, now.monotonic_ms + _NO_ID_RETRY_MS)
            else:
                transaction.expired()
                del self._transactions[transactional_id]
                outcome.records.append(encode_record(TransactionLogKey(transactional_id=transactional_id), None))
        return outcome

    # steps

    def _transaction(self, transactional_id: str) -> Transaction:
        transaction = self._transactions.get(_non_empty(transactional_id))
        if transaction is None:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"transactional id {transactional_id!r} is not known; it must be initialised first",
            )
        return transaction

    def _fresh_producer_id(self) -> int:
        producer_id = self._take_producer_id()
        if producer_id is None:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no producer id is at hand yet; ask again")
        return producer_id

    def _abort(self, transaction: Transaction, now: Now, outcome: TransactionOutcome) -> None:
        next_producer_id = self._fresh_producer_id() if transaction.epochs_used_up else NO_PRODUCER_ID
        self._decide(transaction.aborted_by_coordinator(next_producer_id, now.wall_ms), now, outcome)

    def _decide(self, transaction: Transaction, now: Now, outcome: TransactionOutcome) -> None:
        self._become(transaction, now, outcome)
        self._send_markers(transaction, now, outcome)

    def _send_markers(self, transaction: Transaction, now: Now, outcome: TransactionOutcome) -> None:
        if not transaction.partitions:
            self._become(transaction.completed(now.wall_ms), now, outcome)
            return
        outcome.markers.append(
            MarkerToWrite(
                transaction.transactional_id,
                transaction.producer_id,
                transaction.producer_epoch,
                self._coordinator_epoch,
                transaction.is_commit,
                transaction.client_transaction_version,
                tuple(sorted(transaction.partitions)),
            )
        )

    def _become(self, transaction: Transaction, now: Now, outcome: TransactionOutcome) -> None:
        before = self._transactions.get(transaction.transactional_id)
        self._transactions[transaction.transactional_id] = transaction
        outcome.records.append(transaction_record(transaction))
        if before is None or before.state is not ONGOING or transaction.state is not ONGOING:
            self._set_deadline(transaction, now)

    def _set_deadline(self, transaction: Transaction, now: Now) -> None:
        if transaction.state is ONGOING:
            due_ms = transaction.start_timestamp_ms + transaction.timeout_ms
        elif transaction.state in IDLE:
            due_ms = transaction.last_update_timestamp_ms + self._id_expiration_ms
        else:
            self._timers.cancel(transaction.transactional_id)
            return
        # what the records know is wall time; from here on the clock counts that never steps
        self._timers.set(transaction.transactional_id, now.monotonic_ms + max(0, due_ms - now.wall_ms))


def _non_empty(transactional_id: str | None) -> str:
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id must not be empty")
    return transactional_id


def _as_known(code: ErrorCode, version: int, knows_fenced: int) -> ErrorCode:
    """Older clients have another name for a fenced producer."""
    if code is ErrorCode.PRODUCER_FENCED and version < knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def _replied(outcome: TransactionOutcome, token: Token, response: object) -> TransactionOutcome:
    outcome.reply(token, response)
    return outcome
