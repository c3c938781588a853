"""The state of a transactional producer: what may be done now, and what an answer changes. Pure: it sends nothing.

    NEW --identified--> READY --begin--> OPEN --> COMMITTING --ended--> READY
                                          |         |
                                          v         v
                                       FAILED --> ABORTING --ended--> READY, or NEW where another epoch is needed

from COMMITTING to LEFT_OPEN, for good, when somebody else is to end the transaction, and from anywhere to UNUSABLE, for
good, when the producer is fenced or what it asks for is forbidden.

There are two ways to write (KIP-890). With transaction.version 1 the coordinator is told of a partition before a record
goes there, and the producer keeps its epoch until an abort. With version 2 leaders tell the coordinator by themselves,
and every end of a transaction gives the next epoch, so that a late record of an old transaction cannot slip into a new
one. Under a new epoch sequence numbers begin at 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from barnabas.client.metadata import TopicPartition
from barnabas.client.produce.identity import ProducerIdentity
from barnabas.client.produce.open_transaction import OpenTransaction
from barnabas.client.produce.transaction_errors import (
    NoTransaction,
    OutcomeUnknown,
    ProducerFenced,
    ProducerUnusable,
    TransactionAborted,
)
from barnabas.core.errors import ErrorCode, KafkaError

WITH_EPOCH_PER_TRANSACTION = 2
_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_FORBIDDEN = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


class Phase(Enum):
    NEW = "has no producer id"
    READY = "has no transaction open"
    OPEN = "has a transaction open"
    FAILED = "has a transaction open that can only be aborted"
    COMMITTING = "is committing its transaction"
    ABORTING = "is aborting its transaction"
    LEFT_OPEN = "has left its transaction open, for somebody else to end"
    UNUSABLE = "cannot go on"


_WRITING = (Phase.OPEN, Phase.COMMITTING)


class TransactionState:
    """Of one transactional id in one producer."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.phase = Phase.NEW
        self.identity: ProducerIdentity | None = None
        self.version = 1
        self.problem: KafkaError | None = None
        """Why it failed, or cannot be used."""
        self.has_written = False
        """Whether the coordinator may have heard of this transaction."""
        self._known: set[TopicPartition] = set()
        self._unknown: dict[TopicPartition, None] = {}
        self._has_lost_identity = False

    @property
    def bumps_epoch(self) -> bool:
        return self.version >= WITH_EPOCH_PER_TRANSACTION

    def identified(self, identity: ProducerIdentity, version: int) -> None:
        self.identity, self.version = identity, version
        self.phase = Phase.READY

    def begin(self) -> None:
        self.check_usable()
        if self.phase is not Phase.READY:
            raise NoTransaction(f"the producer of {self.transactional_id!r} {self.phase.value}; one at a time")
        self.phase = Phase.OPEN

    @property
    def is_usable(self) -> bool:
        return self.phase is not Phase.UNUSABLE

    def check_usable(self) -> None:
        if not self.is_usable:
            assert self.problem is not None
            raise self.problem.with_traceback(None)  # it is raised again and again

    def check_open(self) -> None:
        """Raise why nothing may be sent now."""
        if self.phase is Phase.OPEN:
            return
        self.check_usable()
        if self.phase is Phase.FAILED:
            assert self.problem is not None
            raise TransactionAborted(self.transactional_id, self.problem)
        raise NoTransaction(
            f"the producer of {self.transactional_id!r} {self.phase.value}; "
            "send inside of `async with producer.transaction()`"
        )

    # what is written

    def may_write(self, partition: TopicPartition) -> bool:
        """Whether records may go to a partition; if not yet, it is one of those to tell the coordinator of."""
        if self.phase not in _WRITING:
            return False
        if self.bumps_epoch:
            self.has_written = True
            return True
        if partition not in self._known:
            self._unknown[partition] = None
            return False
        return True

    def to_add(self) -> list[TopicPartition]:
        """The partitions that the coordinator is yet to be told of."""
        return list(self._unknown)

    def added(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._known.add(partition)
            self._unknown.pop(partition, None)

    def will_write(self) -> None:
        """The coordinator is about to hear of this transaction."""
        self.has_written = True

    # what goes wrong

    def record_lost(self, error: KafkaError) -> None:
        """A batch was given up. If a leader calls the epoch old, the coordinator will tell what that means."""
        if error.code == ErrorCode.PRODUCER_FENCED:
            self.refused(error)
        else:
            self._fail(error)

    def refused(self, error: KafkaError) -> None:
        """A coordinator refused something for good."""
        if error.code in _FENCED:
            self._give_up(ProducerFenced(self.transactional_id))
        elif error.code in _FORBIDDEN:
            self._give_up(ProducerUnusable(self.transactional_id, error))
        else:
            # The id has expired while it was idle: the coordinator knows of nothing that it could end.
            self._has_lost_identity |= error.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
            self._fail(error)

    def commit_unknown(self, error: KafkaError) -> None:
        """The coordinator was told to commit, and has not answered in time."""
        self._give_up(OutcomeUnknown(self.transactional_id, error))

    def _fail(self, error: KafkaError) -> None:
        if self.phase in _WRITING:
            self.phase = Phase.FAILED
            self.problem = error

    def _give_up(self, error: ProducerUnusable) -> None:
        if self.is_usable:
            self.phase = Phase.UNUSABLE
            self.problem = error

    # the end

    def commit(self) -> None:
        """Take no more records; those that were posted may still leave, and fail."""
        self.check_open()
        self.phase = Phase.COMMITTING

    def leave_open(self) -> OpenTransaction | None:
        """What was delivered is for somebody else to commit; None if nothing was: then there is no transaction."""
        if not self.has_written:
            self.ended(None, committed=True)
            return None
        assert self.identity is not None
        self.phase = Phase.LEFT_OPEN
        return OpenTransaction(self.transactional_id, *self.identity)

    def abort(self) -> None:
        self.check_usable()
        self.phase = Phase.ABORTING

    @property
    def coordinator_must_know(self) -> bool:
        """Whether the coordinator has to be told the end."""
        return self.has_written and not self._has_lost_identity

    def ended(self, next_identity: ProducerIdentity | None, *, committed: bool) -> None:
        """It is over. After an abort sequence numbers may be missing: without a next epoch, ask for one."""
        needs_identity = self._has_lost_identity or (not committed and next_identity is None and self.has_written)
        self.identity = next_identity or self.identity
        self._known.clear()
        self._unknown.clear()
        self.has_written = self._has_lost_identity = False
        self.problem = None
        self.phase = Phase.NEW if needs_identity else Phase.READY
