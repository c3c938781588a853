"""Drives the shards of one internal topic: load, execute, wait for the watermark, keep time.

A shard lives where its partition is led. When leadership comes it is loaded from the log, which is done when everything
that was read is committed. Requests wait for that with `ready`, for `LOAD_PATIENCE_S` after the load began; a load that
takes longer answers COORDINATOR_LOAD_IN_PROGRESS. When leadership goes, the shard is dropped, and waiting requests get
NOT_COORDINATOR.

An operation changes the shard at once and gives records. They are appended together, and the replies leave when the
watermark has passed them; a read has no records, and leaves when everything that was appended before it is committed.
So nobody is ever told what a fail-over could take back. An append that fails leaves the shard ahead of its log: then it
is thrown away and loaded again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from barnabas.coordinator.outcome import CoordinatorRecord, Now, Outcome, Token
from barnabas.core import logs
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.records.batch import CorruptBatch, headers
from barnabas.records.builder import BatchBuilder, record_size_bound
from barnabas.records.control import ControlType, parse_end_marker
from barnabas.records.reader import records_of
from barnabas.wire.primitives import DecodeError

if TYPE_CHECKING:
    from barnabas.cluster.partition import Partition
    from barnabas.core.seams import Clock, Executor
    from barnabas.storage.log import Log
    from barnabas.storage.log_slice import LogSlice

_log = logs.get_logger(__name__)
_LOAD_BYTES = 1 << 17  # at a time: what the loop is held up for
_LOAD_PAUSE_SECONDS = 1.0
LOAD_PATIENCE_S = 5.0
"""How long requests wait for a shard from the moment its load begins. Clients survive COORDINATOR_LOAD_IN_PROGRESS,
but some report it to their users, and most loads take milliseconds."""


class Producer(NamedTuple):
    """The transactional producer on whose behalf records are written."""

    producer_id: int
    epoch: int


class Shard(Protocol):
    def replay(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:
        """Fold a record of the log; `producer_id` is -1 unless it was written in a transaction."""
        ...

    def replay_end(self, producer_id: int, committed: bool) -> None:
        """Fold the end of a producer's transaction."""
        ...

    def loaded(self, now: Now) -> Outcome:
        """The log has been read to its end; time begins to count."""
        ...

    @property
    def next_deadline_ms(self) -> int | None: ...

    def expire(self, now: Now) -> Outcome: ...


S = TypeVar("S", bound=Shard)


class ShardDriver(Generic[S]):
    """One shard, from the election of this broker as its partition's leader to the end of that."""

    def __init__(
        self,
        partition: Partition,
        make_shard: Callable[[], S],
        clock: Clock,
        executor: Executor,
        on_committed: Callable[[ShardDriver[S], Outcome], None],
        suspect: Callable[[Log, int], None] = lambda log, offset: None,
    ) -> None:
        """`on_committed` is called with every outcome whose records are committed, before its replies leave; `suspect`
        with a place in the log that cannot be read.
        """
        self.partition = partition
        self.shard: S | None = None  # None while it is being loaded
        self._make_shard = make_shard
        self._clock = clock
        self._executor = executor
        self._on_committed = on_committed
        self._suspect = suspect
        self._is_suspected = False
        self._closed = False
        self._tokens = 0
        self._waiting: dict[Token, Callable[[Any], None]] = {}
        self._uncommitted: deque[tuple[int, Outcome]] = deque()  # the offset that must be committed first
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0  # when it will go off
        self._settled = asyncio.Event()  # set while the shard is loaded or the driver closed
        self._load_started = clock.monotonic()
        self._loading = asyncio.ensure_future(self._load())

    @property
    def is_closed(self) -> bool:
        return self._closed

    # operations

    def call(
        self,
        operation: Callable[[S, Token, Now], Outcome],
        reply: Callable[[Any], None],
        producer: Producer | None = None,
    ) -> None:
        """Run an operation; `reply` is called with its response, or with a KafkaError if the shard cannot give one."""
        shard = self.shard
        if shard is None or self._closed:
            reply(KafkaError(ErrorCode.NOT_COORDINATOR if self._closed else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
        self._tokens += 1
        self._waiting[self._tokens] = reply
        self._take(operation(shard, self._tokens, self._now()), producer)

    def execute(
        self, operation: Callable[[S, Token, Now], Outcome], producer: Producer | None = None
    ) -> asyncio.Future[Any]:
        """Run an operation; the future gives its response, or KafkaError."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(response: Any) -> None:
            if future.done():  # cancelled: nobody waits any more
                return
            if isinstance(response, KafkaError):
                future.set_exception(response)
            else:
                future.set_result(response)

        self.call(operation, done, producer)
        return future

    def tell(self, event: Callable[[S, Now], Outcome], producer: Producer | None = None) -> None:
        """Let the shard know of something that nobody waits for."""
        if self.shard is not None and not self._closed:
            self._take(event(self.shard, self._now()), producer)

    def _now(self) -> Now:
        return Now(int(self._clock.monotonic() * 1000), self._clock.now_ms())

    def _take(self, outcome: Outcome, producer: Producer | None = None) -> None:
        if outcome.records:
            try:
                committed_at = self._append(outcome.records, producer)
            except (KafkaError, OSError) as error:
                self._reload(error)
                return
        else:
            committed_at = self._uncommitted[-1][0] if self._uncommitted else 0
        if committed_at > self.partition.log.high_watermark:
            self._uncommitted.append((committed_at, outcome))
        else:
            self._deliver(outcome)
        self._set_timer()

    def _append(self, records: Iterable[CoordinatorRecord], producer: Producer | None) -> int:
        """Write one batch, or several if one cannot hold it all; the offset at which they are committed."""
        now_ms = self._clock.now_ms()
        limit_bytes = self.partition.log.config.max_message_bytes
        builder = _builder(producer)
        end_offset = 0
        for key, value in records:
            if len(builder) and builder.estimated_size + record_size_bound(key, value, ()) > limit_bytes:
                end_offset = self._append_batch(builder, now_ms)
                builder = _builder(producer)
            builder.append(key, value, (), now_ms)
        return self._append_batch(builder, now_ms) if len(builder) else end_offset

    def _append_batch(self, builder: BatchBuilder, now_ms: int) -> int:
        """Who waits for the watermark waits also while the in-sync replicas are too few: the records stay."""
        end_offset = self.partition.append_from_coordinator(memoryview(builder.build()), now_ms).last_offset + 1
        if end_offset > self.partition.log.high_watermark:
            self.partition.when_committed(end_offset, self._committed)
        return end_offset

    def _committed(self, outcome: ErrorCode) -> None:
        if outcome is not ErrorCode.NONE:
            return  # leadership or the disk is lost; `close` or a reload tells those who wait
        high_watermark = self.partition.log.high_watermark
        while self._uncommitted and self._uncommitted[0][0] <= high_watermark:
            self._deliver(self._uncommitted.popleft()[1])

    def _deliver(self, outcome: Outcome) -> None:
        self._on_committed(self, outcome)
        for token, response in outcome.replies:
            reply = self._waiting.pop(token, None)
            if reply is not None:
                reply(response)

    # time

    def _set_timer(self) -> None:
        """See to it that the timer goes off no later than the next deadline; heartbeats move deadlines away often."""
        deadline_ms = self.shard.next_deadline_ms if self.shard is not None else None
        if deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        self._stop_timer()
        self._timer_ms = deadline_ms
        # Whole milliseconds, as the shard counts: what is left of one may be too short for a clock to pass.
        delay_ms = max(0, deadline_ms - self._now().monotonic_ms)
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._expire)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        if self.shard is not None:
            self._take(self.shard.expire(self._now()))

    # loading

    async def ready(self) -> bool:
        """Wait until requests can be served; False if leadership was lost instead.

        Raises COORDINATOR_LOAD_IN_PROGRESS when the load takes longer than `LOAD_PATIENCE_S`.
        """
        if not self._settled.is_set():
            patience_s = self._load_started + LOAD_PATIENCE_S - self._clock.monotonic()
            try:
                await asyncio.wait_for(self._settled.wait(), patience_s)
            except TimeoutError:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from None
        return not self._closed

    async def _load(self) -> None:
        log = self.partition.log
        while True:
            shard = self._make_shard()
            end = log.log_end_offset
            try:
                count = await self._replay_log(shard, end)
                break
            except (KafkaError, OSError) as error:
                _log.error("coordinator cannot load", topic=log.topic, partition=log.partition, problem=str(error))
                await asyncio.sleep(_LOAD_PAUSE_SECONDS)
        if not await self._is_committed(end) or self._closed:
            return  # leadership is lost; `close` tells those who wait
        self.shard = shard
        tell = _log.info if count else _log.debug
        tell(
            "coordinator loaded",
            topic=log.topic,
            partition=log.partition,
            records=count,
            ms=round((self._clock.monotonic() - self._load_started) * 1000, 1),
        )
        self._take(shard.loaded(self._now()))
        if self.shard is not None:  # else what it had to append failed, and it is being loaded again
            self._settled.set()

    async def _is_committed(self, offset: int) -> bool:
        """Wait until everything below an offset is committed; False if that is no longer ours to know."""
        if offset <= self.partition.log.high_watermark:
            return True
        committed: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.partition.when_committed(offset, lambda code: None if committed.done() else committed.set_result(code))
        return await committed is ErrorCode.NONE

    async def _replay_log(self, shard: S, end: int) -> int:
        """Fold the records below `end` into a shard; their number."""
        log = self.partition.log
        offset, count = log.log_start_offset, 0
        while offset < end:
            found = log.read(offset, _LOAD_BYTES, end, True)
            if not len(found):
                break
            entries, damaged, offset = await self._executor.submit(_entries, found, offset)
            for at, problem in damaged:
                self._pass_over(at, problem)
            for at, entry in entries:
                try:
                    entry(shard)
                except DecodeError as error:
                    _log.error(
                        "record skipped", topic=log.topic, partition=log.partition, offset=at, problem=str(error)
                    )
            count += len(entries)
        return count

    def _pass_over(self, offset: int, problem: str) -> None:
        """Do without a batch that cannot be read. But first see whether the log is damaged: then others are to lead."""
        log = self.partition.log
        if len(self.partition.isr) > 1 and (log.damage or not self._is_suspected):
            self._is_suspected = True
            self._suspect(log, offset)
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, problem)
        _log.error("batch skipped", topic=log.topic, partition=log.partition, offset=offset, problem=problem)

    def _reload(self, error: Exception) -> None:
        log = self.partition.log
        _log.warning(
            "coordinator could not append; loading again", topic=log.topic, partition=log.partition, problem=error
        )
        self._fail_waiting(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.shard = None
        self._settled.clear()
        self._stop_timer()
        self._load_started = self._clock.monotonic()
        self._loading = asyncio.ensure_future(self._load())

    def close(self) -> None:
        """Leadership is lost: what was not committed was never told, and is dropped."""
        self._closed = True
        self._settled.set()
        self._loading.cancel()
        self.shard = None
        self._stop_timer()
        self._fail_waiting(ErrorCode.NOT_COORDINATOR)

    def _fail_waiting(self, code: ErrorCode) -> None:
        self._uncommitted.clear()
        waiting, self._waiting = self._waiting, {}
        for reply in waiting.values():
            reply(KafkaError(code))


def _builder(producer: Producer | None) -> BatchBuilder:
    if producer is None:
        return BatchBuilder()
    return BatchBuilder(producer_id=producer.producer_id, producer_epoch=producer.epoch, transactional=True)


Entry = tuple[int, Callable[[Any], None]]
"""An offset, and what is told to the shard."""


def _entries(found: LogSlice, offset: int) -> tuple[list[Entry], list[tuple[int, str]], int]:
    """What the batches of a slice have a shard replay, those that are damaged, and the offset after them all.

    Runs in a thread.
    """
    entries: list[Entry] = []
    damaged: list[tuple[int, str]] = []
    view = memoryview(found.read())
    for position, header in headers(view):
        batch = view[position : position + header.size]
        try:
            if header.is_control:
                marker = parse_end_marker(batch)
                if marker is not None:
                    end = _end_of(header.producer_id, marker.type is ControlType.COMMIT)
                    entries.append((header.base_offset, end))
            else:
                producer_id = header.producer_id if header.is_transactional else -1
                entries += [
                    (record.offset, _record_of(CoordinatorRecord(record.key, record.value), record.offset, producer_id))
                    for record in records_of(batch, from_offset=offset)
                    if record.key is not None
                ]
        except CorruptBatch as error:
            damaged.append((header.base_offset, str(error)))
        offset = header.next_offset
    return entries, damaged, offset


def _record_of(record: CoordinatorRecord, offset: int, producer_id: int) -> Callable[[Any], None]:
    return lambda shard: shard.replay(record, offset, producer_id)


def _end_of(producer_id: int, committed: bool) -> Callable[[Any], None]:
    return lambda shard: shard.replay_end(producer_id, committed)
