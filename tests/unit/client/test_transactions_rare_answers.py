"""What a transactional producer makes of answers that a healthy coordinator rarely gives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, cast

import pytest

from barnabas.client.client import Client
from barnabas.client.coordinator import Coordinator
from barnabas.client.errors import CannotReach, NoAnswer
from barnabas.client.metadata import TopicPartition
from barnabas.client.produce.identity import NOBODY, ProducerIdentity
from barnabas.client.produce.sender import Sender
from barnabas.client.produce.transaction_errors import OutcomeUnknown, ProducerFenced, TransactionAborted
from barnabas.client.produce.transactions import Transaction, Transactions
from barnabas.core.clock import SystemClock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.net.sockets import TcpNetwork
from barnabas.wire.messages.k18_api_versions import ApiVersionsResponse, FinalizedFeatureKey
from barnabas.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from barnabas.wire.messages.k26_end_txn import EndTxnRequest, EndTxnResponse

PLACE = TopicPartition("orders", 0)
NO_ANSWER = NoAnswer("broker 1", "EndTxn", 5)
FIRST, NEXT = ProducerIdentity(7, 0), ProducerIdentity(7, 1)


class Script:
    """In a coordinator's place: answers as it is told, and remembers what it was asked."""

    def __init__(self, *answers: Any, version: int = 2) -> None:
        self.asked: list[Any] = []
        self._answers = list(answers)
        self._version = version

    async def features(self) -> ApiVersionsResponse:
        return ApiVersionsResponse(finalized_features=[FinalizedFeatureKey("transaction.version", self._version, 1)])

    async def ask(self, message: Any, *, highest: int | None = None) -> Any:
        self.asked.append(message)
        if isinstance(message, InitProducerIdRequest):
            return InitProducerIdResponse(0, 0, *(FIRST if message.producer_id < 0 else NEXT))
        answer = self._answers.pop(0)
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    def check(self, code: int) -> None:
        pass


class Idle:
    """In a sender's place, when nothing is under way."""

    def __init__(self) -> None:
        self.woken = asyncio.Event()

    async def discard(self, error: KafkaError) -> None:
        pass

    def abandon_waiting(self, error: KafkaError) -> None:
        pass

    def wake(self) -> None:
        self.woken.set()


def end(code: int = 0, identity: ProducerIdentity = NOBODY) -> EndTxnResponse:
    return EndTxnResponse(0, code, *identity)


def added(code: int) -> AddPartitionsToTxnResponse:
    result = AddPartitionsToTxnTopicResult(PLACE.topic, [AddPartitionsToTxnPartitionResult(PLACE.partition, code)])
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[result])


def run(
    script: Script, work: Callable[[Transactions, Idle], Coroutine[Any, Any, None]], max_block_ms: int = 30_000
) -> None:
    async def session() -> None:
        network = TcpNetwork(asyncio.get_running_loop())
        client = Client("localhost:1", network=network, clock=SystemClock(), random=Random(1))
        transactions = Transactions(client, "id", 60_000, max_block_ms)
        transactions._coordinator = cast(Coordinator, script)
        sender = Idle()

        async def flush() -> None:
            pass

        transactions.attach(cast(Sender, sender), flush)
        await transactions.obtain()
        await work(transactions, sender)
        await client.close()

    asyncio.run(session())


async def write(transactions: Transactions) -> None:
    async with Transaction(transactions):
        assert transactions.may_receive(PLACE)


def test_a_commit_is_repeated_until_it_is_answered() -> None:
    concurrent = end(ErrorCode.CONCURRENT_TRANSACTIONS)
    script = Script(NO_ANSWER, concurrent, CannotReach("broker 1", ConnectionResetError()), end(0, NEXT))

    async def work(transactions: Transactions, sender: Idle) -> None:
        await write(transactions)
        assert transactions.current == NEXT

    run(script, work)
    assert script.asked[1:] == [EndTxnRequest("id", *FIRST, committed=True)] * 4


def test_a_refusal_after_silence_does_not_tell_whether_it_was_committed() -> None:
    async def work(transactions: Transactions, sender: Idle) -> None:
        with pytest.raises(OutcomeUnknown, match="whether its transaction is committed is not known"):
            await write(transactions)

    run(Script(NO_ANSWER, end(ErrorCode.PRODUCER_FENCED)), work)


def test_a_refusal_at_once_tells_that_nothing_was_committed() -> None:
    async def work(transactions: Transactions, sender: Idle) -> None:
        with pytest.raises(ProducerFenced):
            await write(transactions)

    run(Script(end(ErrorCode.INVALID_PRODUCER_EPOCH)), work)


def test_a_commit_that_is_refused_for_now_is_aborted_and_the_next_one_begins() -> None:
    script = Script(end(ErrorCode.TRANSACTION_ABORTABLE), end(0, NEXT), end(0, ProducerIdentity(7, 2)))

    async def work(transactions: Transactions, sender: Idle) -> None:
        with pytest.raises(TransactionAborted):
            await write(transactions)
        await write(transactions)

    run(script, work)
    assert [message.committed for message in script.asked[1:]] == [True, False, True]
    assert script.asked[3].producer_epoch == NEXT.producer_epoch


def test_a_record_that_is_lost_just_before_the_block_ends_aborts_and_the_next_one_begins() -> None:
    script = Script(end(0, NEXT), end(0, ProducerIdentity(7, 2)))

    async def lose(transactions: Transactions) -> None:
        async with Transaction(transactions):
            assert transactions.may_receive(PLACE)
            transactions.lost(KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "refused"))

    async def work(transactions: Transactions, sender: Idle) -> None:
        with pytest.raises(TransactionAborted):
            await lose(transactions)
        await write(transactions)

    run(script, work)
    assert [message.committed for message in script.asked[1:]] == [False, True]


def test_an_id_that_expired_is_asked_for_anew_without_ending_anything() -> None:
    script = Script(end(ErrorCode.INVALID_PRODUCER_ID_MAPPING), end(0, ProducerIdentity(7, 2)))

    async def work(transactions: Transactions, sender: Idle) -> None:
        with pytest.raises(TransactionAborted):
            await write(transactions)
        await write(transactions)

    run(script, work)
    kinds = [type(message) for message in script.asked]
    assert kinds == [InitProducerIdRequest, EndTxnRequest, InitProducerIdRequest, EndTxnRequest]


def test_an_abort_that_nobody_confirms_lets_the_exception_through_and_asks_for_the_next_epoch() -> None:
    script = Script(*[NO_ANSWER] * 20, end(0, ProducerIdentity(7, 2)))

    async def fails(transactions: Transactions) -> None:
        async with Transaction(transactions):
            assert transactions.may_receive(PLACE)
            raise ZeroDivisionError

    async def work(transactions: Transactions, sender: Idle) -> None:
        with pytest.raises(ZeroDivisionError):
            await fails(transactions)
        script._answers = script._answers[-1:]
        await write(transactions)

    run(script, work, max_block_ms=100)
    assert script.asked[-2] == InitProducerIdRequest("id", 60_000, *FIRST)
    assert script.asked[-1].producer_epoch == NEXT.producer_epoch


@pytest.mark.parametrize("first", [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_version_1_adds_a_partition_until_the_coordinator_has_it(first: ErrorCode) -> None:
    script = Script(added(first), added(0), end(), version=1)

    async def work(transactions: Transactions, sender: Idle) -> None:
        async with Transaction(transactions):
            assert not transactions.may_receive(PLACE)
            await sender.woken.wait()
            assert transactions.may_receive(PLACE)
        assert transactions.current == FIRST

    run(script, work)
    kinds = [type(message) for message in script.asked[1:]]
    assert kinds == [AddPartitionsToTxnRequest, AddPartitionsToTxnRequest, EndTxnRequest]


def test_version_1_aborts_what_may_not_be_written() -> None:
    script = Script(added(ErrorCode.TOPIC_AUTHORIZATION_FAILED), end(), version=1)

    async def writes_what_it_must_not(transactions: Transactions, sender: Idle) -> None:
        async with Transaction(transactions):
            assert not transactions.may_receive(PLACE)
            await sender.woken.wait()
            transactions.state.check_open()

    async def work(transactions: Transactions, sender: Idle) -> None:
        with pytest.raises(TransactionAborted, match="cannot add orders-0 to a transaction"):
            await writes_what_it_must_not(transactions, sender)

    run(script, work)
    assert script.asked[-1] == EndTxnRequest("id", *FIRST, committed=False)
