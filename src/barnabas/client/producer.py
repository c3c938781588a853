"""The producer: records in, acknowledged batches out.

    async with Producer("localhost:9092") as producer:
        landed = await producer.send("orders", b"two apples", key=b"customer-7")

`post` writes a record straight into the batch of its partition and returns; the sender does the rest. Leaving the
`async with` waits for all that was posted; leaving it by an exception gives up what is not acknowledged yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, Self

from barnabas.client.client import Client
from barnabas.client.errors import Abandoned, BufferFull
from barnabas.client.options import WrongOption, at_least, names_options, one_of
from barnabas.client.produce.accumulator import Accumulator
from barnabas.client.produce.buffer_memory import BufferMemory
from barnabas.client.produce.delivery import Delivery, Failures, Moved, Pending, RecordMetadata
from barnabas.client.produce.identity import Identity
from barnabas.client.produce.partitioner import Partitioner
from barnabas.client.produce.posting import Posting
from barnabas.client.produce.producer_columns import ColumnSender, ColumnsSent
from barnabas.client.produce.sender import ACKS_NONE, Sender, SendingRules
from barnabas.client.produce.transaction_errors import NoTransaction
from barnabas.client.produce.transactions import Transaction, Transactions
from barnabas.client.serializers import Serializer, serializer
from barnabas.client.session import Session
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import KafkaError
from barnabas.records.compression import BY_NAME
from barnabas.records.record import Header

ACKS_LEADER = 1
ACKS_ALL = -1
_ACKS = {"all": ACKS_ALL, ACKS_ALL: ACKS_ALL, ACKS_LEADER: ACKS_LEADER, ACKS_NONE: ACKS_NONE}
_MOST_IN_FLIGHT = 5  # as many batches of a producer as a leader remembers per partition
_POSTS_PER_TURN = 1000

Timestamp = int | datetime


class NewRecord(NamedTuple):
    """A record for `send_many`."""

    value: Any
    key: Any = None
    headers: Sequence[Header] = ()
    partition: int | None = None
    timestamp: Timestamp | None = None


@dataclass(frozen=True, slots=True)
class ProducerMetrics:
    """What a producer has done so far, and what it holds now."""

    records_sent: int
    bytes_sent: int
    records_failed: int
    requests_sent: int
    batches_repeated: int
    buffered_bytes: int
    batches_waiting: int
    batches_in_flight: int


@names_options
class Producer:
    """Options are Kafka's in snake case. Owned by the event loop that enters it."""

    def __init__(
        self,
        cluster: str | Client,
        *,
        acks: int | str = "all",
        enable_idempotence: bool | None = None,
        compression_type: str = "none",
        batch_size: int = 16_384,
        linger_ms: int = 5,
        buffer_memory: int = 32 << 20,
        max_request_size: int = 1 << 20,
        max_in_flight_requests_per_connection: int = 5,
        max_block_ms: int = 60_000,
        connect_timeout_ms: int = 10_000,
        request_timeout_ms: int = 30_000,
        delivery_timeout_ms: int = 120_000,
        metadata_max_age_ms: int = 300_000,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        partitioner: Partitioner | None = None,
        key_serializer: str | Serializer = "bytes",
        value_serializer: str | Serializer = "bytes",
        client_id: str = "barnabas",
    ) -> None:
        one_of("acks", acks, _ACKS)
        one_of("compression_type", compression_type, BY_NAME)
        may_be_idempotent = _ACKS[acks] == ACKS_ALL and max_in_flight_requests_per_connection <= _MOST_IN_FLIGHT
        if enable_idempotence and not may_be_idempotent:
            needed = f"acks='all' and max_in_flight_requests_per_connection of {_MOST_IN_FLIGHT} at most"
            raise WrongOption(f"enable_idempotence=True needs {needed}")
        self._is_idempotent = may_be_idempotent if enable_idempotence is None else enable_idempotence
        if transactional_id is not None and not (transactional_id and self._is_idempotent):
            raise WrongOption(f"transactional_id={transactional_id!r} needs idempotence, and at least one letter")
        self._transactional_id = transactional_id
        self._transaction_timeout_ms = at_least("transaction_timeout_ms", transaction_timeout_ms, 1)
        self._rules = SendingRules(
            acks=_ACKS[acks],
            compression=BY_NAME[compression_type],
            linger_seconds=at_least("linger_ms", linger_ms, 0) / 1000,
            max_in_flight=at_least("max_in_flight_requests_per_connection", max_in_flight_requests_per_connection, 1),
            max_request_size=at_least("max_request_size", max_request_size, 1),
            max_block_ms=at_least("max_block_ms", max_block_ms, 0),
            request_timeout_ms=at_least("request_timeout_ms", request_timeout_ms, 1),
            delivery_timeout_ms=at_least("delivery_timeout_ms", delivery_timeout_ms, 1),
            metadata_max_age_ms=at_least("metadata_max_age_ms", metadata_max_age_ms, 1),
        )
        self._batch_size = min(at_least("batch_size", batch_size, 1), max_request_size)
        self._memory = BufferMemory(at_least("buffer_memory", buffer_memory, 1))
        self._partitioner = partitioner
        serializers = serializer("key_serializer", key_serializer), serializer("value_serializer", value_serializer)
        self._session = Session(
            self,
            cluster,
            client_id=client_id,
            connect_timeout_ms=at_least("connect_timeout_ms", connect_timeout_ms, 1),
            request_timeout_ms=request_timeout_ms,
        )
        self._posting = Posting(self._session, *serializers)
        self._failures = Failures()
        self._sender: Sender | None = None
        self._transactions: Transactions | None = None
        self._columns: ColumnSender

    async def __aenter__(self) -> Self:
        client = await self._session.open()
        try:
            identity = await self._identity(client)
        except BaseException:
            await self._session.close()
            raise
        self._sender = Sender(client, self._rules, identity, self._memory, self._failures)
        accumulator = Accumulator(client, self._sender, self._memory, self._partitioner, self._batch_size)
        self._posting.open(accumulator, self._transactions, client.clock.now_ms)
        self._columns = ColumnSender(client, self._sender, accumulator, self._memory)
        if self._transactions is not None:
            self._transactions.attach(self._sender, self.flush)
        return self

    async def _identity(self, client: Client) -> Identity:
        """With a transactional id, older producers that have it are fenced here."""
        if self._transactional_id is None:
            return Identity(client, is_idempotent=self._is_idempotent)
        limits = self._transaction_timeout_ms, self._rules.max_block_ms
        self._transactions = Transactions(client, self._transactional_id, *limits)
        await self._transactions.obtain()
        return self._transactions

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Leaving flushes, and raises what nobody was told of; leaving by an exception gives up what is pending."""
        if self._session.is_open:
            await self._close(flushing=kind is None)

    async def close(self) -> None:
        """Wait until everything posted is settled, and let go of the cluster. What was closed stays so."""
        if self._session.is_open:
            self._session.check()
            await self._close(flushing=True)

    async def _close(self, flushing: bool) -> None:
        try:
            if self._transactions is not None:
                await self._transactions.settled()
            if flushing:
                await self.flush()
        finally:
            sender, self._sender = self._sender, None
            try:
                if self._transactions is not None:
                    await self._transactions.close()
                if sender is not None:
                    await sender.close(Abandoned())
            finally:
                await self._session.close()

    async def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp: Timestamp | None = None,
    ) -> RecordMetadata:
        """Send a record and wait until it is acknowledged. A cancelled call may still deliver."""
        return await (await self._post(topic, value, key, headers, partition, timestamp))

    def post(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp: Timestamp | None = None,
    ) -> Delivery:
        """Put a record into its batch and return at once; await the handle to learn where the record landed.

        With no room left it raises `BufferFull`: `await producer.room()`, then post again.
        """
        return self._posting.post(topic, value, key, headers, partition, timestamp)

    async def send_many(self, topic: str, records: Iterable[Any]) -> list[RecordMetadata]:
        """Send values, or `NewRecord`s, and wait until all are acknowledged; where each landed, in their order.

        If some fail, the first failure is raised when the fate of all is known. A cancelled call may still deliver.
        """
        posted: list[Delivery] = []
        for record in records:
            value, key, headers, partition, timestamp = record if isinstance(record, NewRecord) else NewRecord(record)
            if len(posted) % _POSTS_PER_TURN == 0:
                await self.room()
            posted.append(await self._post(topic, value, key, headers, partition, timestamp))
        landed: list[RecordMetadata] = []
        failure: KafkaError | None = None
        for delivery in posted:
            try:
                landed.append(await delivery)
            except KafkaError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return landed

    async def send_columns(self, topic: str, table: Any) -> ColumnsSent:
        """Send the rows of an Arrow table or record batch and wait until all are acknowledged.

        The columns are `value` and, where wanted, `key`, `headers`, `timestamp` and `partition`: bytes or text, for no
        serialiser is asked. A table is looked at as a whole before anything is sent. If rows fail later, the error
        tells which were delivered. A cancelled call may still deliver.
        """
        self._session.check()
        if self._transactions is not None:
            self._transactions.check_may_post()
        rows = await self._columns.look_at(topic, table, by_key=self._partitioner is None)
        await self.partition_count(topic)
        return await self._columns.send(topic, rows)

    def transaction(self) -> Transaction:
        """A transaction, to be entered by `async with`: committed at the end, aborted by an exception."""
        self._session.check()
        if self._transactions is None:
            raise NoTransaction(
                "this producer has no transactional_id; make it with Producer(..., transactional_id=...)"
            )
        return Transaction(self._transactions)

    async def _post(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Sequence[Header],
        partition: int | None,
        timestamp: Timestamp | None,
    ) -> Delivery:
        """Post as soon as there is room."""
        while True:
            try:
                return self.post(topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp)
            except BufferFull:
                await self.room()

    async def room(self) -> None:
        """Wait until there is room for another batch; the loop gets its turn in any case."""
        self._session.check()
        await asyncio.sleep(0)
        if not self._memory.has_room(self._batch_size):
            self._open_sender().wake()
            await self._memory.room(self._batch_size, self._rules.max_block_ms)

    async def flush(self) -> None:
        """Wait until everything posted so far is settled; a failure that nobody was told of is raised."""
        self._session.check()
        sender = self._open_sender()
        for parked in sender.last_parked():
            await parked.settled()
        sender.close_batches()
        unsettled: list[Pending] = [*sender.batches()]
        while unsettled:
            parts: list[Pending] = []
            for pending in unsettled:
                await pending.settled()
                if isinstance(outcome := pending.outcome, Moved):
                    parts += [part for _, part in outcome.parts]
            unsettled = parts
        self._failures.raise_unseen()

    async def partition_count(self, topic: str) -> int:
        """How many partitions a topic has; one that does not exist is created, where the cluster does that."""
        client = self._session.check()
        find = partial(client.metadata.topic, topic, create=True)
        return len((await client.retrying(find, timeout_ms=self._rules.max_block_ms)).partitions)

    def metrics(self) -> ProducerMetrics:
        """Counts since the start, and what is held now."""
        self._session.check()
        sender = self._open_sender()
        return ProducerMetrics(
            records_sent=sender.fates.records_sent,
            bytes_sent=sender.fates.bytes_sent,
            records_failed=sender.fates.records_failed,
            requests_sent=sender.requests_sent,
            batches_repeated=sender.fates.batches_repeated,
            buffered_bytes=self._memory.used_bytes,
            batches_waiting=sum(len(queue.waiting) for queue in sender.active),
            batches_in_flight=sum(len(queue.in_flight) for queue in sender.active),
        )

    def _open_sender(self) -> Sender:
        assert self._sender is not None  # for the session is open
        return self._sender
