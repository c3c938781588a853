"""The producer without async.

    with Producer("localhost:9092") as producer:
        landed = producer.send("orders", b"two apples", key=b"customer-7")

`post` hands a record over to the loop's thread and returns; when the buffer is full it waits. A partitioner and the
serialisers are called in that thread: they must not call the client.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from barnabas.client.produce.transaction_offsets import HasOffsets
from barnabas.client.produce.transactions import Transaction as AsyncTransaction
from barnabas.client.producer import Producer as AsyncProducer
from barnabas.client.producer import Timestamp
from barnabas.records.record import Header
from barnabas.sync.consumer import Consumer
from barnabas.sync.facade import Client, Facade, does, options_of, waits
from barnabas.sync.outbox import Delivery, Outbox

if TYPE_CHECKING:
    from barnabas.client.group.values import GroupMetadata, OffsetAndMetadata
    from barnabas.client.metadata import TopicPartition
    from barnabas.client.produce.open_transaction import OpenTransaction

T = TypeVar("T")
_MAX_BLOCK_MS = 60_000


class Producer(Client[AsyncProducer]):
    """As `barnabas.Producer`."""

    @options_of(AsyncProducer)
    def __init__(self, cluster: str, **options: Any) -> None:
        super().__init__(AsyncProducer(cluster, **options), cluster)
        self._max_block_ms: int = options.get("max_block_ms", _MAX_BLOCK_MS)
        self._outbox: Outbox

    def __enter__(self) -> Self:
        super().__enter__()
        self._outbox = Outbox(self._async, self._check(), self._max_block_ms)
        return self

    async def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self._outbox.drained()
        else:
            self._outbox.abandon()
        await super()._leave(kind, error, trace)
        if kind is None:
            self._outbox.raise_refused()

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
        """Hand a record over and return at once; ask the handle for its `result()` to learn where the record landed.

        With no room left it waits, for `max_block_ms` at the most, and then raises `BufferFull`.
        """
        self._check()
        options = {"key": key, "headers": headers, "partition": partition, "timestamp": timestamp}
        return self._outbox.put(topic, value, options)

    send = waits(AsyncProducer.send)
    send_many = waits(AsyncProducer.send_many)
    send_columns = waits(AsyncProducer.send_columns)
    room = waits(AsyncProducer.room)
    partition_count = waits(AsyncProducer.partition_count)
    metrics = does(AsyncProducer.metrics)

    def flush(self) -> None:
        """Wait until everything posted so far is settled; a failure that nobody was told of is raised."""
        self._run(self._flush())

    def transaction(self) -> Transaction:
        """A transaction, to be entered by `with`: committed at the end, aborted by an exception."""

        async def make() -> AsyncTransaction:
            return self._async.transaction()

        return Transaction(self, self._run(make()))

    async def _in_order(self, work: Coroutine[Any, Any, T]) -> T:
        """What was posted before comes first."""
        try:
            await self._outbox.drained()
            return await work
        finally:
            work.close()

    async def _flush(self) -> None:
        await self._async.flush()
        self._outbox.raise_refused()


class Transaction(Facade[AsyncTransaction]):
    """One transaction of a producer, as the block that makes it sees it."""

    def __init__(self, producer: Producer, made: AsyncTransaction) -> None:
        self._producer = producer
        self._async = made

    def __enter__(self) -> Self:
        self._run(self._async.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._end(kind, error, trace))

    async def _end(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """A record that was refused, and nobody looked, must not be missing in a transaction that is committed."""
        try:
            self._producer._outbox.raise_refused()
        except Exception as refusal:
            await self._async.__aexit__(type(refusal), refusal, None)
            if kind is None:
                raise
        else:
            await self._async.__aexit__(kind, error, trace)

    def leave_open(self) -> OpenTransaction | None:
        """Leave the transaction open for somebody else to end, once everything posted is acknowledged."""
        return self._run(self._leave_open())

    async def _leave_open(self) -> OpenTransaction | None:
        self._producer._outbox.raise_refused()
        return await self._async.leave_open()

    def send_offsets(
        self,
        consumer: Consumer | HasOffsets | Mapping[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata | None = None,
    ) -> None:
        """Commit offsets of a group as part of this transaction: of a consumer, everything that it has handed out."""
        given = consumer._async if isinstance(consumer, Consumer) else consumer
        self._run(self._async.send_offsets(given, group))

    def _run(self, work: Coroutine[Any, Any, T], unclaimed: Callable[[T], None] | None = None) -> T:
        return self._producer._run(work, unclaimed)
