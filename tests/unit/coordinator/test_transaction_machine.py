"""Every request, in both versions of the protocol, by producers right and wrong, in any order that Hypothesis finds."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas.coordinator.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ENDING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREVIOUS_STATES,
    TopicPartition,
    Transaction,
)
from barnabas.coordinator.transaction_log import decode_transaction, transaction_record
from barnabas.core.errors import ErrorCode
from tests.unit.coordinator.transactions import ID_EXPIRATION_MS, MAX_TIMEOUT_MS, NOBODY, A, B, C, Desk, Producer

IDS = st.sampled_from(["one", "two"])
PARTITIONS = st.sets(st.sampled_from([A, B, C]), min_size=1)
EPOCH_OFF_BY = st.sampled_from([0, 0, 0, 0, -1, -1, -2, 1])


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk()
        self.checked = 0
        self.last: dict[str, Transaction] = {}

    def producer(self, id: str, off_by: int) -> Producer:
        transaction = self.desk.shard.transactions.get(id)
        if transaction is None:
            return Producer(5, 0)
        return Producer(transaction.producer_id, max(0, transaction.producer_epoch + off_by))

    @rule(id=IDS, names_itself=st.booleans(), off_by=EPOCH_OFF_BY, timeout_ms=st.sampled_from([0, 50, MAX_TIMEOUT_MS]))
    def init(self, id: str, names_itself: bool, off_by: int, timeout_ms: int) -> None:
        expected = self.producer(id, off_by) if names_itself else NOBODY
        code, producer = self.desk.init(expected, id=id, timeout_ms=timeout_ms)
        if code is ErrorCode.NONE:
            assert producer == self.desk.transaction(id).producer
        else:
            assert producer == NOBODY

    @rule(id=IDS, off_by=EPOCH_OFF_BY, partitions=PARTITIONS, version=st.sampled_from([1, 3, 5]))
    def add(self, id: str, off_by: int, partitions: set[TopicPartition], version: int) -> None:
        producer = self.producer(id, off_by)
        code = self.desk.add(producer, *sorted(partitions), id=id, version=version)
        if code is ErrorCode.NONE:
            assert producer == self.desk.transaction(id).producer
            assert partitions <= self.desk.transaction(id).partitions

    @rule(id=IDS, off_by=EPOCH_OFF_BY, commit=st.booleans(), version=st.sampled_from([1, 4, 5, 5]))
    def end(self, id: str, off_by: int, commit: bool, version: int) -> None:
        producer = self.producer(id, off_by)
        code, following = self.desk.end(producer, commit, id=id, version=version)
        if code is not ErrorCode.NONE:
            assert following == NOBODY
            return
        assert self.desk.transaction(id).is_commit is commit
        if version >= 5:
            assert following > producer
            assert following == self.desk.transaction(id).producer_after_end

    @rule(id=IDS, epoch=st.sampled_from([32764, 32766]))
    def use_up_epochs(self, id: str, epoch: int) -> None:
        """As if it had been used for long."""
        transaction = self.desk.shard.transactions.get(id)
        if transaction is not None and transaction.state is EMPTY and transaction.producer_epoch < epoch:
            self.desk.records.append(transaction_record(replace(transaction, producer_epoch=epoch)))
            self.desk.restart()

    @rule()
    def write_some_markers(self) -> None:
        self.desk.write_markers(A)

    @rule()
    def write_markers(self) -> None:
        self.desk.write_markers()

    @rule(ms=st.sampled_from([1, 60, ID_EXPIRATION_MS]))
    def pass_time(self, ms: int) -> None:
        self.desk.pass_time(ms)
        self.desk.expire()

    @rule()
    def restart(self) -> None:
        self.desk.restart()

    @invariant()
    def every_record_is_a_lawful_step(self) -> None:
        for record in self.desk.records[self.checked :]:
            id, transaction = decode_transaction(record)
            before = self.last.pop(id, None)
            if transaction is None:
                assert before is not None
                assert before.state not in ENDING
                continue
            if before is not None:
                assert before.state in PREVIOUS_STATES[transaction.state]
                assert transaction.producer >= before.producer, "the epoch went back"
                assert before.state is not PREPARE_COMMIT or transaction.state is COMPLETE_COMMIT
                assert before.state is not PREPARE_ABORT or transaction.state is COMPLETE_ABORT
            self.last[id] = transaction
        self.checked = len(self.desk.records)

    @invariant()
    def the_log_tells_what_the_shard_knows(self) -> None:
        live, replayed = self.desk.shard.transactions, self.desk.replayed().transactions
        assert live.keys() == replayed.keys()
        for id, transaction in live.items():
            if transaction.state in ENDING:  # markers that were written are not in the log
                missing = {each for marker in self.desk.markers if marker.transactional_id == id for each in marker[-1]}
                assert transaction.partitions == missing <= replayed[id].partitions
            else:
                assert transaction == replayed[id]

    @invariant()
    def whatever_can_time_out_has_a_deadline(self) -> None:
        waiting = any(each.state not in ENDING for each in self.desk.shard.transactions.values())
        assert (self.desk.shard.next_deadline_ms is not None) is waiting

    def teardown(self) -> None:
        self.desk.write_markers()
        assert not self.desk.markers
        assert all(each.state not in ENDING for each in self.desk.shard.transactions.values())
        self.every_record_is_a_lawful_step()


TestTransactionMachine = TransactionMachine.TestCase
TestTransactionMachine.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
