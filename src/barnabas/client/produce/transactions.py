"""Transactions: records and offsets that become visible together, or never.

    async with Producer("localhost:9092", transactional_id="orders-1") as producer:
        async for batch in consumer.batches():
            async with producer.transaction() as txn:
                await producer.send_many("shipments", shipments_of(batch))
                await txn.send_offsets(consumer)

Leaving the block commits, leaving it by an exception aborts. `Transactions` asks the coordinators what
`transaction_state` finds necessary. An end that was begun is carried out even if its caller is cancelled: the next
transaction waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from barnabas.client.coordinator import Coordinator
from barnabas.client.errors import CannotReach, NoAnswer, refused
from barnabas.client.metadata import TopicPartition, by_topic
from barnabas.client.produce.identity import Identity, ProducerIdentity
from barnabas.client.produce.open_transaction import OpenTransaction
from barnabas.client.produce.transaction_errors import NoTransaction, ProducerUnusable, TransactionAborted
from barnabas.client.produce.transaction_offsets import HasOffsets, commit_offsets
from barnabas.client.produce.transaction_state import Phase, TransactionState
from barnabas.client.routes import KeyType
from barnabas.core import logs
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k22_init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.wire.messages.k26_end_txn import EndTxnRequest

if TYPE_CHECKING:
    from barnabas.client.client import Client
    from barnabas.client.group.values import GroupMetadata, OffsetAndMetadata
    from barnabas.client.produce.sender import Sender

_log = logs.get_logger(__name__)
_FEATURE = "transaction.version"
_OF_VERSION_1 = {"Produce": 11, "AddPartitionsToTxn": 3, "EndTxn": 4}
"""The newest requests that mean what they meant before an epoch per transaction (KIP-890)."""
_REASONS: Mapping[int, str] = {
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "transaction_timeout_ms is beyond the cluster's transaction.max.timeout.ms",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "this client has no right to the transactional_id",
}


class Transactions(Identity):
    """Who a transactional producer is to leaders, and what it arranges with its coordinator."""

    def __init__(self, client: Client, transactional_id: str, timeout_ms: int, max_block_ms: int) -> None:
        super().__init__(client, is_idempotent=True)
        self.transactional_id: str = transactional_id
        self.state = TransactionState(transactional_id)
        self._timeout_ms = timeout_ms
        self._max_block_ms = max_block_ms
        self._coordinator = Coordinator(client, KeyType.TRANSACTION, transactional_id)
        self._group_coordinators: dict[str, Coordinator] = {}
        self._sender: Sender | None = None
        self._flush: Callable[[], Awaitable[None]] | None = None
        self._adding: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[Any] | None = None
        self._beginning = asyncio.Lock()

    def attach(self, sender: Sender, flush: Callable[[], Awaitable[None]]) -> None:
        """Tell by whom the records leave."""
        self._sender, self._flush = sender, flush

    async def settled(self) -> None:
        """Wait for an end that was begun and whose caller was cancelled."""
        if self._ending is not None:
            await asyncio.wait([self._ending])

    async def close(self) -> None:
        """Stop what is under way: the coordinator will abort what is open."""
        tasks = [task for task in (self._adding, self._ending) if task is not None and not task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # what the sender asks

    async def obtain(self) -> None:
        """Get the id and the next epoch: whoever had this transactional id before is fenced."""
        known = self.state.identity or ProducerIdentity()
        request = InitProducerIdRequest(self.transactional_id, self._timeout_ms, *known)

        async def attempt() -> None:
            features = await self._coordinator.features()
            response = await self._coordinator.ask(request)
            self._check(response.error_code, "cannot begin")
            levels = {feature.name: feature.max_version_level for feature in features.finalized_features}
            self.state.identified(
                ProducerIdentity(response.producer_id, response.producer_epoch), levels.get(_FEATURE, 1)
            )

        await self._retrying(attempt)
        self.current = self.state.identity
        self.highest_produce_version = self._highest("Produce")

    def check_may_post(self) -> None:
        self.state.check_open()

    def may_receive(self, partition: TopicPartition) -> bool:
        if self.state.may_write(partition):
            return True
        if self.state.problem is not None:
            asyncio.get_running_loop().call_soon(self._abandon)
        elif self.state.to_add() and self._adding is None:
            self._adding = asyncio.create_task(self._add_partitions())
        return False

    def lost(self, error: KafkaError) -> None:
        self.state.record_lost(error)
        if self.state.problem is not None:
            asyncio.get_running_loop().call_soon(self._abandon)

    # the life of a transaction

    async def begin(self) -> None:
        async with self._beginning:
            await self.settled()
            self.state.check_usable()
            if self.state.phase is Phase.NEW:
                await self.obtain()
            self.state.begin()

    async def commit(self) -> None:
        """Deliver what was posted, then commit; what keeps it from being committed is raised after the abort."""
        await self._carry_out(self._commit())

    async def abort(self) -> None:
        """Give up what was posted, and abort."""
        await self._carry_out(self._abort())

    async def leave_open(self) -> OpenTransaction | None:
        """Deliver what was posted, and leave the end to somebody else."""
        left: OpenTransaction | None = await self._carry_out(self._leave_open())
        return left

    async def _carry_out(self, end: Any) -> Any:
        """Let a begun end go on when its caller is cancelled: half an end would help nobody."""
        self._ending = asyncio.create_task(end)
        try:
            return await asyncio.shield(self._ending)
        except asyncio.CancelledError:
            self._ending.add_done_callback(self._ended_unseen)
            raise

    def _ended_unseen(self, ending: asyncio.Task[Any]) -> None:
        problem = None if ending.cancelled() else ending.exception()
        if problem is not None:
            _log.warning("transaction not committed", transactional_id=self.transactional_id, problem=str(problem))

    async def _commit(self) -> None:
        await self._deliver()
        if self.state.phase is Phase.COMMITTING:
            try:
                await self._tell_end(committed=True)
            except KafkaError as error:
                if error.retriable:
                    self.state.commit_unknown(error)
        if self.state.phase is not Phase.READY:
            await self._give_up()

    async def _leave_open(self) -> OpenTransaction | None:
        await self._deliver()
        if self.state.phase is not Phase.COMMITTING:
            await self._give_up()
        return self.state.leave_open()

    async def _deliver(self) -> None:
        assert self._flush is not None
        if self.state.phase is not Phase.FAILED:  # or else it fell to be aborted before its block has ended
            self.state.commit()
            try:
                await self._flush()
            except KafkaError as error:
                self.state.record_lost(error)

    async def _give_up(self) -> NoReturn:
        """Abort, and raise why."""
        problem = self.state.problem
        assert problem is not None
        self.state.check_usable()
        await self._abort()
        self.state.check_usable()
        raise TransactionAborted(self.transactional_id, problem) from problem

    async def _abort(self) -> None:
        assert self._sender is not None
        if self.state.is_usable:
            self.state.abort()
        await self._sender.discard(KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "its transaction was aborted"))
        if self._adding is not None:
            await asyncio.wait([self._adding])
        if not self.state.is_usable:
            return
        try:
            await self._tell_end(committed=False)
        except KafkaError as error:
            if self.state.is_usable:
                _log.warning("abort not confirmed", transactional_id=self.transactional_id, problem=str(error))
                self.state.ended(None, committed=False)  # the next epoch, which is asked for now, ends it too

    async def _tell_end(self, *, committed: bool) -> None:
        following: ProducerIdentity | None = None
        unanswered = False

        async def attempt() -> None:
            nonlocal following, unanswered
            assert self.state.identity is not None
            request = EndTxnRequest(self.transactional_id, *self.state.identity, committed)
            try:
                response = await self._coordinator.ask(request, highest=self._highest("EndTxn"))
                self._check(response.error_code, "cannot commit" if committed else "cannot abort")
            except KafkaError as error:
                if committed and unanswered and not error.retriable:
                    self.state.commit_unknown(error)  # an earlier attempt may have done it
                unanswered |= isinstance(error, (CannotReach, NoAnswer))
                raise
            if response.producer_epoch >= 0:
                following = ProducerIdentity(response.producer_id, response.producer_epoch)

        if self.state.coordinator_must_know:
            await self._retrying(attempt)
        self.state.ended(following, committed=committed)
        self.current = self.state.identity

    # what else is arranged

    async def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
        self.state.check_open()
        if not offsets:
            return
        self.state.will_write()
        assert self.state.identity is not None

        async def tell_coordinator() -> None:
            assert self.state.identity is not None
            request = AddOffsetsToTxnRequest(self.transactional_id, *self.state.identity, group.group_id)
            response = await self._coordinator.ask(request)
            self._check(response.error_code, f"cannot commit offsets of group {group.group_id!r} in")

        if not self.state.bumps_epoch:
            await self._failing(tell_coordinator)
        await self._failing(
            commit_offsets(
                self._group_coordinator(group.group_id),
                self.transactional_id,
                self.state.identity,
                offsets,
                group,
                self.state.bumps_epoch,
            )
        )

    def _group_coordinator(self, group_id: str) -> Coordinator:
        known = self._group_coordinators.get(group_id)
        if known is None:
            known = self._group_coordinators[group_id] = Coordinator(self._client, KeyType.GROUP, group_id)
        return known

    async def _add_partitions(self) -> None:
        """Tell the coordinator of partitions, until it knows all that wait for it."""
        assert self._sender is not None
        try:
            while wanted := self.state.to_add():
                self.state.will_write()

                async def attempt(wanted: list[TopicPartition] = wanted) -> None:
                    await self._add(wanted)

                await self._failing(attempt)
                self.state.added(wanted)
        except KafkaError:
            self._abandon()
        finally:
            self._adding = None
            self._sender.wake()

    async def _add(self, partitions: list[TopicPartition]) -> None:
        assert self.state.identity is not None
        producer_id, producer_epoch = self.state.identity
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(*item) for item in by_topic(partitions).items()],
        )
        response = await self._coordinator.ask(request, highest=self._highest("AddPartitionsToTxn"))
        answers = [
            (answer.partition_error_code, f"cannot add {topic.name}-{answer.partition_index} to")
            for topic in response.results_by_topic_v3_and_below
            for answer in topic.results_by_partition
            if answer.partition_error_code not in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED)
        ]
        for code, what in answers:
            self._coordinator.check(code)
            self._check(code, what)

    # the common ground

    def _highest(self, api: str) -> int | None:
        return None if self.state.bumps_epoch else _OF_VERSION_1[api]

    def _check(self, code: int, what: str) -> None:
        if code:
            reason = _REASONS.get(code)
            raise refused(code, f"{what} a transaction of {self.transactional_id!r}", reason)

    async def _retrying(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """Repeat what may pass; the state learns what does not."""
        limit = self._max_block_ms
        try:
            async with asyncio.timeout(limit / 1000):
                await self._client.retrying(attempt, timeout_ms=limit)
        except TimeoutError:
            message = f"{self._coordinator} did not answer within max_block_ms={limit}; is it overloaded or stopped?"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message) from None
        except KafkaError as error:
            if not error.retriable:
                self.state.refused(error)
            self.state.check_usable()
            raise

    async def _failing(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """The same for what the open transaction cannot do without."""
        try:
            await self._retrying(attempt)
        except KafkaError as error:
            self.state.record_lost(error)
            raise

    def _abandon(self) -> None:
        """Nothing more of this transaction leaves: tell whoever waits for a record of it."""
        problem = self.state.problem
        if self._sender is not None and problem is not None:
            self._sender.abandon_waiting(problem)


class Transaction:
    """One transaction of a producer, as the block that makes it sees it."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._is_open = False

    async def __aenter__(self) -> Self:
        await self._transactions.begin()
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_open:
            return
        self._is_open = False
        if kind is None:
            await self._transactions.commit()
            return
        await self._transactions.abort()
        problem = self._transactions.state.problem
        if isinstance(error, KafkaError) and isinstance(problem, ProducerUnusable) and problem is not error:
            raise problem from error

    async def leave_open(self) -> OpenTransaction | None:
        """Wait until everything posted is acknowledged, and leave the transaction open for somebody else to end.

        `admin.transactions.end` does that, in any process. The producer is done: close it. If nothing was sent, there
        is no transaction (None).
        """
        if not self._is_open:
            raise NoTransaction("this transaction is not open; it can be left open inside of its block alone")
        self._is_open = False
        return await self._transactions.leave_open()

    async def send_offsets(
        self,
        consumer: HasOffsets | Mapping[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata | None = None,
    ) -> None:
        """Commit offsets of a group as part of this transaction.

        Of a consumer it is everything that it has handed out so far; its own commits should be off
        (`enable_auto_commit=False`). Otherwise give the offsets and the group.
        """
        if not self._is_open:
            raise NoTransaction("this transaction is not open; send offsets inside of its block")
        if not isinstance(consumer, Mapping):
            await self._transactions.send_offsets(consumer.passed(), group or consumer.group_metadata())
        elif group is None:
            raise TypeError("send_offsets of a mapping needs the group that the offsets are of")
        else:
            await self._transactions.send_offsets(consumer, group)
