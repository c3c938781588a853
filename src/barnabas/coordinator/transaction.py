"""The state of one transactional id, and what may become of it.

    Empty --add--> Ongoing --end--> PrepareCommit / PrepareAbort --markers written--> CompleteCommit / CompleteAbort

A transaction is decided by its Prepare record. From then on only the markers are missing, and they say the same however
often they are written. Who may do what follows from producer id and epoch. In version 2 of the protocol (KIP-890) the
end of a transaction raises the epoch, so every transaction has one of its own, and a request that comes late or twice
names an epoch that is over. In version 1 the epoch rises only with InitProducerId and when the coordinator itself
aborts: a late EndTxn there may meet a later transaction of the same producer, which no coordinator can tell.

An epoch is 16 bits wide. Where it runs out, the next transaction has a new producer id, with epoch 0. The very last
epoch is never handed out, so that there is always one left to fence a producer with.

A `Transaction` is a value: a transition gives the next one, a refusal is a `KafkaError`. It is what a record of
`__transaction_state` holds, but for `last_producer_epoch`, which Kafka's record has no room for: it only helps to tell
a repeated InitProducerId (KIP-360), which after a change of coordinator is refused as fenced.
"""

from __future__ import annotations

from dataclasses import field, replace
from enum import IntEnum
from typing import Any, NamedTuple

from barnabas.core.dataclass import dataclass
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP

LAST_EPOCH = 2**15 - 1
"""Only the coordinator ends transactions with it; no producer ever has it."""
LAST_PRODUCER_EPOCH = LAST_EPOCH - 1

EPOCH_PER_TRANSACTION = 2
"""The version of the transaction protocol from which on every transaction has an epoch of its own."""


class TransactionState(IntEnum):
    """The number in records, and the name that tools show."""

    label: str

    def __new__(cls, number: int, label: str) -> TransactionState:
        member = int.__new__(cls, number)
        member._value_ = number
        member.label = label
        return member

    EMPTY = 0, "Empty"
    ONGOING = 1, "Ongoing"
    PREPARE_COMMIT = 2, "PrepareCommit"
    PREPARE_ABORT = 3, "PrepareAbort"
    COMPLETE_COMMIT = 4, "CompleteCommit"
    COMPLETE_ABORT = 5, "CompleteAbort"
    DEAD = 6, "Dead"
    PREPARE_EPOCH_FENCE = 7, "PrepareEpochFence"


EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD, PREPARE_EPOCH_FENCE = (
    TransactionState
)

IDLE = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})
ENDING = frozenset({PREPARE_COMMIT, PREPARE_ABORT})

PREVIOUS_STATES: dict[TransactionState, frozenset[TransactionState]] = {
    EMPTY: IDLE,
    ONGOING: IDLE | {ONGOING},
    PREPARE_COMMIT: frozenset({ONGOING}),
    PREPARE_ABORT: IDLE | {ONGOING, PREPARE_EPOCH_FENCE},  # a producer of version 2 may abort what it never began
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
    # nothing rests in these two: they are passed through within one step, and never written
    DEAD: IDLE,
    PREPARE_EPOCH_FENCE: frozenset({ONGOING}),
}
"""The states that each state may be entered from."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    epoch: int


class IllegalTransition(AssertionError):
    """A step that the table of states does not have: an error of this program, not of a client."""


_DECIDE = None
_DONE = ErrorCode.NONE
_FENCED = ErrorCode.PRODUCER_FENCED
_INVALID = ErrorCode.INVALID_TXN_STATE
_CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS

_Answer = ErrorCode | None


class _EndAnswers(NamedTuple):
    """What EndTxn comes to: it decides the transaction, was done before, or is refused."""

    commit: _Answer
    abort: _Answer
    commit_again: _Answer = _FENCED
    """Again: with the epoch before, which in version 2 the producer had when it first asked."""
    abort_again: _Answer = _FENCED


_END_VERSION_1: dict[TransactionState, _EndAnswers] = {
    EMPTY: _EndAnswers(_INVALID, _INVALID),
    ONGOING: _EndAnswers(_DECIDE, _DECIDE),
    PREPARE_COMMIT: _EndAnswers(_CONCURRENT, _CONCURRENT),
    PREPARE_ABORT: _EndAnswers(_CONCURRENT, _CONCURRENT),
    COMPLETE_COMMIT: _EndAnswers(_DONE, _INVALID),
    COMPLETE_ABORT: _EndAnswers(_INVALID, _DONE),
}
_END_VERSION_2: dict[TransactionState, _EndAnswers] = {
    EMPTY: _EndAnswers(_INVALID, _DECIDE),
    ONGOING: _EndAnswers(_DECIDE, _DECIDE),
    COMPLETE_COMMIT: _EndAnswers(_INVALID, _DECIDE, commit_again=_DONE, abort_again=_INVALID),
    COMPLETE_ABORT: _EndAnswers(_INVALID, _DECIDE, commit_again=_INVALID, abort_again=_DONE),
}


@dataclass(frozen=True, slots=True)
class Transaction:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    last_update_timestamp_ms: int
    state: TransactionState = EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    """Those that were added; while it ends, those whose marker is missing."""
    start_timestamp_ms: int = NO_TIMESTAMP
    client_transaction_version: int = 0
    previous_producer_id: int = NO_PRODUCER_ID
    """The id before the last step, usually the same."""
    next_producer_id: int = NO_PRODUCER_ID
    """The id from the end of this transaction on, if its epochs are used up."""
    last_producer_epoch: int = field(default=NO_PRODUCER_EPOCH, compare=False)

    @staticmethod
    def created(transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
        return Transaction(transactional_id, producer_id, 0, timeout_ms, now_ms, previous_producer_id=producer_id)

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def producer_after_end(self) -> ProducerIdAndEpoch:
        """Who the producer is once the markers are written: with this EndTxn answers, before they are."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(self.next_producer_id, 0)
        return self.producer

    @property
    def is_commit(self) -> bool:
        return self.state in (PREPARE_COMMIT, COMPLETE_COMMIT)

    @property
    def epochs_used_up(self) -> bool:
        return self.producer_epoch >= LAST_PRODUCER_EPOCH

    # judging: a refusal is raised

    def check_settled(self) -> None:
        """Nobody gets through while markers are being written. This comes first: the producer may know an epoch, or
        even an id, that is only valid afterwards."""
        if self.state in ENDING:
            raise self._refusal(_CONCURRENT, f"is in {self.state.label}; its markers are being written")

    def check_producer(self, producer_id: int, producer_epoch: int) -> None:
        if producer_id != self.producer_id:
            raise self._refusal(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"has producer {self.producer_id}, not {producer_id}"
            )
        if producer_epoch != self.producer_epoch:
            raise self._refusal(_FENCED, f"has producer epoch {self.producer_epoch}, not {producer_epoch}")

    def check_expected(self, expected: ProducerIdAndEpoch | None) -> None:
        """Whether a producer that names who it was may go on (KIP-360). A zombie is told so at once, and cannot have
        the transaction of its successor aborted."""
        if expected is not None and expected != self.producer and not self.is_initialised_again(expected):
            raise self._refusal(_FENCED, f"has {self.producer}, not {expected}")

    def is_initialised_again(self, expected: ProducerIdAndEpoch | None) -> bool:
        """Whether the producer asks once more for what it was given: who initialises without naming an epoch leaves
        no last epoch behind, so nobody else can be meant."""
        if expected is None or self.state not in IDLE or self.last_producer_epoch == NO_PRODUCER_EPOCH:
            return False
        if expected.producer_id == self.producer_id:
            return expected.epoch == self.last_producer_epoch != self.producer_epoch
        return expected == (self.previous_producer_id, self.last_producer_epoch) and expected.epoch >= (
            LAST_PRODUCER_EPOCH
        )

    def is_end_decided_now(self, producer_id: int, producer_epoch: int, commit: bool, version: int) -> bool:
        """Whether this EndTxn decides the transaction; False if it only repeats what was decided."""
        if version < EPOCH_PER_TRANSACTION:
            self.check_producer(producer_id, producer_epoch)
            answers, again = _END_VERSION_1[self.state], False
        else:
            self.check_settled()
            answers, again = _END_VERSION_2[self.state], self._ended_with(producer_id, producer_epoch)
            if not again:
                self.check_producer(producer_id, producer_epoch)
        if again:
            answer = answers.commit_again if commit else answers.abort_again
        else:
            answer = answers.commit if commit else answers.abort
        if answer:
            verb = "commit" if commit else "abort"
            raise self._refusal(answer, f"is in {self.state.label}; epoch {producer_epoch} cannot {verb} it")
        return answer is _DECIDE

    def _ended_with(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the last transaction was this producer's, and its end what changed the epoch or the id since.

        Kafka does not ask for the version that the transaction ended with, and so may congratulate a zombie on the
        transaction of a successor that speaks version 1.
        """
        if self.state in IDLE and self.client_transaction_version >= EPOCH_PER_TRANSACTION:
            if producer_id == self.producer_id:
                return producer_epoch + 1 == self.producer_epoch
            return (
                producer_id == self.previous_producer_id
                and producer_epoch == LAST_PRODUCER_EPOCH
                and self.producer_epoch == 0
            )
        return False

    # transitions

    def initialised(self, timeout_ms: int, expected: ProducerIdAndEpoch | None, now_ms: int) -> Transaction:
        """The same producer id with its next epoch."""
        return self._to(
            EMPTY,
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=NO_PRODUCER_EPOCH if expected is None else self.producer_epoch,
            timeout_ms=timeout_ms,
            start_timestamp_ms=NO_TIMESTAMP,
            last_update_timestamp_ms=now_ms,
        )

    def initialised_again(self, timeout_ms: int, now_ms: int) -> Transaction:
        """The same producer id with the same epoch."""
        return replace(
            self.initialised(timeout_ms, None, now_ms),
            producer_epoch=self.producer_epoch,
            last_producer_epoch=self.last_producer_epoch,
            previous_producer_id=self.previous_producer_id,
        )

    def rotated(
        self, producer_id: int, timeout_ms: int, expected: ProducerIdAndEpoch | None, now_ms: int
    ) -> Transaction:
        """A new producer id, because the epochs of the old one are used up."""
        return replace(self.initialised(timeout_ms, expected, now_ms), producer_id=producer_id, producer_epoch=0)

    def with_partitions(self, partitions: frozenset[TopicPartition], version: int, now_ms: int) -> Transaction:
        return self._to(
            ONGOING,
            partitions=self.partitions | partitions,
            start_timestamp_ms=self.start_timestamp_ms if self.state is ONGOING else now_ms,
            last_update_timestamp_ms=now_ms,
            client_transaction_version=version,
        )

    def decided(self, commit: bool, version: int, next_producer_id: int, now_ms: int) -> Transaction:
        """Committed or aborted, with the markers still to be written."""
        changes: dict[str, Any] = {}
        if version >= EPOCH_PER_TRANSACTION:
            # the last epoch of all is met only in the log of a broker that went wrong; ending it is the way out
            changes["producer_epoch"] = min(self.producer_epoch + 1, LAST_EPOCH)
            changes["last_producer_epoch"] = self.producer_epoch
        if self.state in IDLE:
            changes["start_timestamp_ms"] = now_ms
        return self._to(
            PREPARE_COMMIT if commit else PREPARE_ABORT,
            next_producer_id=next_producer_id,
            last_update_timestamp_ms=now_ms,
            client_transaction_version=version,
            **changes,
        )

    def aborted_by_coordinator(self, next_producer_id: int, now_ms: int) -> Transaction:
        """Fenced and aborted, for a time-out or a new producer: the epoch rises whatever the client speaks."""
        return self._to(PREPARE_EPOCH_FENCE).decided(False, EPOCH_PER_TRANSACTION, next_producer_id, now_ms)

    def without_partitions(self, written: frozenset[TopicPartition]) -> Transaction:
        """With markers written to these. Nothing of it lasts: after a crash they are all written again."""
        return replace(self, partitions=self.partitions - written)

    def completed(self, now_ms: int) -> Transaction:
        producer_id, producer_epoch = self.producer_after_end
        return self._to(
            COMPLETE_COMMIT if self.state is PREPARE_COMMIT else COMPLETE_ABORT,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
            last_update_timestamp_ms=now_ms,
        )

    def expired(self) -> Transaction:
        return self._to(DEAD)

    def _to(self, state: TransactionState, **changes: Any) -> Transaction:
        if self.state not in PREVIOUS_STATES[state]:
            raise IllegalTransition(f"{self.transactional_id!r} cannot go from {self.state.label} to {state.label}")
        return replace(self, state=state, previous_producer_id=self.producer_id, **changes)

    def _refusal(self, code: ErrorCode, reason: str) -> KafkaError:
        return KafkaError(code, f"transactional id {self.transactional_id!r} {reason}")
