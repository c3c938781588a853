"""The consumer: records of some topics, in order within each partition, as they come.

    async with Consumer("localhost:9092", topics=["orders"], group="billing") as consumer:
        async for record in consumer:
            ...

With a group, its members share the partitions and go on where the group has committed. Without one the consumer reads
all partitions of its topics, or those that it is assigned, and whoever uses it keeps the positions.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, Self

from barnabas.client.consume.commits import Commits
from barnabas.client.consume.consumed import ConsumerBatch, ConsumerRecord
from barnabas.client.consume.consumer_errors import DeserializationError
from barnabas.client.consume.consumer_metrics import ConsumerMetrics
from barnabas.client.consume.consumer_places import ConsumerPlaces
from barnabas.client.consume.deserializing import Deserializing, OnPoison, deserializing
from barnabas.client.consume.fetch_options import FetchOptions
from barnabas.client.consume.fetcher import Fetcher
from barnabas.client.consume.group_changes import Callback, Callbacks, GroupChanges
from barnabas.client.consume.locator import Locator
from barnabas.client.consume.positions import Begin, Reading
from barnabas.client.consume.reader import Reader
from barnabas.client.consume.topic_watch import TopicWatch
from barnabas.client.group.member import GroupMember
from barnabas.client.group.options import GroupOptions
from barnabas.client.group.values import GroupMetadata, OffsetAndMetadata, Subscription
from barnabas.client.list_offsets import Isolation
from barnabas.client.metadata import TopicPartition
from barnabas.client.options import WrongOption, at_least, names_options, one_of
from barnabas.client.session import Session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.client.client import Client
    from barnabas.client.serializers import Serializer

log = logging.getLogger(__name__)

_RESETS = ("earliest", "latest", "none")
_LEAVE_SECONDS = 10


@names_options
class Consumer(ConsumerPlaces):
    """Options are Kafka's in snake case. Owned by the event loop that enters it; one task reads at a time."""

    def __init__(
        self,
        cluster: str | Client,
        *,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        group: str | None = None,
        auto_offset_reset: Literal["earliest", "latest", "none"] = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5000,
        isolation_level: Literal["read_uncommitted", "read_committed"] | Isolation = "read_uncommitted",
        fetch_max_wait_ms: int = 500,
        fetch_min_bytes: int = 1,
        fetch_max_bytes: int = 50 << 20,
        max_partition_fetch_bytes: int = 1 << 20,
        max_poll_records: int = 500,
        check_crcs: bool = True,
        client_rack: str = "",
        metadata_max_age_ms: int = 300_000,
        key_deserializer: str | Serializer = "bytes",
        value_deserializer: str | Serializer = "bytes",
        on_poison_record: OnPoison = "raise",
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
        group_instance_id: str | None = None,
        group_protocol: Literal["auto", "classic", "consumer"] = "auto",
        group_remote_assignor: str | None = None,
        partition_assignment_strategy: Sequence[str] | None = None,
        session_timeout_ms: int | None = None,
        heartbeat_interval_ms: int | None = None,
        max_poll_interval_ms: int = 300_000,
        default_api_timeout_ms: int = 60_000,
        client_id: str = "barnabas",
        connect_timeout_ms: int = 10_000,
        request_timeout_ms: int = 30_000,
        retry_timeout_ms: int = 30_000,
    ) -> None:
        self._session = Session(
            self,
            cluster,
            client_id=client_id,
            connect_timeout_ms=connect_timeout_ms,
            request_timeout_ms=request_timeout_ms,
            retry_timeout_ms=retry_timeout_ms,
        )
        self._subscription = _subscription(topics, pattern)
        one_of("auto_offset_reset", auto_offset_reset, _RESETS)
        self._options = FetchOptions(
            isolation_level=_isolation(isolation_level),
            fetch_max_wait_ms=at_least("fetch_max_wait_ms", fetch_max_wait_ms, 0),
            fetch_min_bytes=at_least("fetch_min_bytes", fetch_min_bytes, 0),
            fetch_max_bytes=at_least("fetch_max_bytes", fetch_max_bytes, 1),
            max_partition_fetch_bytes=at_least("max_partition_fetch_bytes", max_partition_fetch_bytes, 1),
            check_crcs=check_crcs,
            client_rack=client_rack,
            auto_offset_reset=auto_offset_reset,
            metadata_max_age_ms=at_least("metadata_max_age_ms", metadata_max_age_ms, 1),
            topics_may_go=pattern is not None,
        )
        self._max_poll_records = at_least("max_poll_records", max_poll_records, 1)
        self._auto_commit = enable_auto_commit
        self._auto_commit_interval_ms = at_least("auto_commit_interval_ms", auto_commit_interval_ms, 1)
        self._deserializing: Deserializing | None = deserializing(
            key_deserializer, value_deserializer, on_poison_record
        )
        self._callbacks = Callbacks(on_assigned, on_revoked, on_lost)
        self._group_options: GroupOptions | None = None
        if group is not None:
            self._group_options = GroupOptions(
                group_id=group,
                group_instance_id=group_instance_id,
                group_protocol=group_protocol,
                group_remote_assignor=group_remote_assignor,
                partition_assignment_strategy=partition_assignment_strategy,
                session_timeout_ms=session_timeout_ms,
                heartbeat_interval_ms=heartbeat_interval_ms,
                max_poll_interval_ms=max_poll_interval_ms,
                metadata_max_age_ms=metadata_max_age_ms,
                client_rack=client_rack or None,
                default_api_timeout_ms=default_api_timeout_ms,
            )
        elif group_instance_id is not None:
            raise WrongOption("group_instance_id is of use with group=... only")
        self._member: GroupMember | None = None
        self._commits: Commits | None = None
        self._changes: GroupChanges | None = None
        self._watchers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        client = await self._session.open()
        try:
            await self._open(client)
        except BaseException:
            await self._close()
            raise
        return self

    async def _open(self, client: Client) -> None:
        if self._group_options is not None:
            self._member = GroupMember(client, self._group_options, self._subscription)
        committed = None if self._member is None else self._member.committed
        self._fetcher = Fetcher(client, self._options, Locator(client, self._options, committed))
        self._reader = Reader(self._fetcher, client.clock, self._attend)
        if self._member is not None:
            self._commits = Commits(self._member, self._reader.passed, self._reader.given)
            automatic = self._commits if self._auto_commit else None
            self._changes = GroupChanges(self._member, self._fetcher, self._reader, automatic, self._callbacks)
            await self._member.start()
            self._watch(self._changes.watch())
            if automatic is not None:
                self._watch(automatic.every(self._auto_commit_interval_ms))
        elif self._subscription is not None:
            watch = TopicWatch(client, self._subscription, self._options.metadata_max_age_ms)
            for partition in sorted(await client.retrying(watch.partitions)):
                self._fetcher.add(partition, Begin.RESET)
            self._fetcher.pump()
            self._watch(watch.watch(self._follow, self._fetcher.complain))

    def _watch(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(self._fetcher.complain_of)
        self._watchers.append(task)

    def _follow(self, partitions: set[TopicPartition]) -> None:
        """Partitions that appear while we read hold nothing that was there before: they are read from the beginning."""
        for partition in sorted(partitions - self._fetcher.states.keys()):
            self._fetcher.add(partition, Begin.EARLIEST)
        if self._subscription is not None and self._subscription.pattern is not None:
            for partition in self._fetcher.states.keys() - partitions:
                self._fetcher.remove(partition)
        self._fetcher.pump()

    async def _attend(self) -> None:
        """What has to be seen to before records are handed out."""
        self._session.check()
        if self._member is not None and self._changes is not None:
            self._member.polled()
            self._member.raise_problem()
            await self._changes.carry_out()
        self._fetcher.raise_problem()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Commit what was moved past, if that is automatic, leave the group, and let go of the cluster."""
        if self._session.is_open:
            self._session.check()
            try:
                if self._changes is not None:
                    async with asyncio.timeout(_LEAVE_SECONDS):
                        await self._changes.finish()
            except TimeoutError:
                log.warning("the group could not be told within %d s how far this consumer came", _LEAVE_SECONDS)
            finally:
                await self._close()

    async def _close(self) -> None:
        for task in self._watchers:
            task.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        if self._member is not None:
            await self._member.close()
        await self._fetcher.close()
        await self._session.close()

    # reading

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Record after record, without end. Each is moved past when the next one is asked for."""
        while True:
            for record in await self.at_hand():
                yield record

    async def at_hand(self) -> Iterator[ConsumerRecord]:
        """Wait for records, and iterate over some that have come in: each is moved past when the next one is taken.

        The iteration ends by itself, after `max_poll_records` at the latest: come back for more then.
        """
        self._check_reads()
        reading = await self._reader.one_by_one()
        raw = islice(reading.iterator, self._max_poll_records)
        return raw if self._deserializing is None else filter(None, map(self._deserializing.open, raw))

    async def poll(self, timeout_ms: int = 500, max_records: int | None = None) -> list[ConsumerRecord]:
        """Up to `max_records` that have come in (`max_poll_records` if not said), waiting for the first.

        They are moved past by the next call. A cancelled call loses nothing.
        """
        self._check_reads()
        limit = self._max_poll_records if max_records is None else at_least("max_records", max_records, 1)
        records: list[ConsumerRecord] = []
        reading = await self._reader.several(timeout_ms)
        while reading is not None and len(records) < limit:
            try:
                self._take(reading, limit - len(records), records)
            except DeserializationError:
                if not records:
                    reading.skip(1)
                    raise
                break  # it comes first in the next call
            reading = self._reader.more()
        return records

    def _check_reads(self) -> None:
        self._session.check()
        if self._subscription is None and not self._fetcher.states:
            raise RuntimeError(
                "this consumer has nothing to read; give it topics=... or pattern=..., or assign partitions"
            )

    def _take(self, reading: Reading, count: int, records: list[ConsumerRecord]) -> None:
        self._reader.holds(reading.state, reading.position)
        upcoming = reading.upcoming(count)
        if self._deserializing is None:
            reading.skip(len(upcoming))
            records += upcoming
            return
        for raw in upcoming:
            record = self._deserializing.open(raw)
            reading.skip(1)
            if record is not None:
                records.append(record)

    async def poll_batch(self, timeout_ms: int | None = 500) -> ConsumerBatch | None:
        """The next batch, which is of one partition; it is moved past by the next call. None if none comes in time."""
        self._check_reads()
        taken = await self._reader.chunk(timeout_ms)
        if taken is None:
            return None
        state, chunk = taken
        return ConsumerBatch(state.partition, chunk, self._deserializing, state.high_watermark)

    async def batches(self, *, commit: bool = False) -> AsyncIterator[ConsumerBatch]:
        """Batch after batch, without end; with `commit`, each is committed before the next one comes."""
        if commit:
            self._group_member()
        while True:
            batch = await self.poll_batch(None)
            assert batch is not None
            yield batch
            if commit:
                await self.commit({batch.partition: batch.next_offset})

    def metrics(self) -> ConsumerMetrics:
        """How this consumer is doing now."""
        self._session.check()
        return self._fetcher.metrics()

    # the group

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None) -> None:
        """Commit these offsets, or without them everything that was handed out so far, the record at hand included."""
        self._session.check()
        self._group_member()
        assert self._commits is not None
        given = self._reader.given() if offsets is None else offsets
        await self._commits.commit(
            {p: OffsetAndMetadata(place) if isinstance(place, int) else place for p, place in given.items()}
        )

    async def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed for these partitions, or for all assigned ones."""
        self._session.check()
        return await self._group_member().committed(self._chosen(partitions))

    def passed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Per partition, where to go on after everything that was handed out: what `commit()` commits."""
        self._session.check()
        return self._reader.given()

    def group_metadata(self) -> GroupMetadata:
        """Who this member is, for a transaction that commits its offsets."""
        self._session.check()
        return self._group_member().metadata()

    def _group_member(self) -> GroupMember:
        if self._member is None:
            raise RuntimeError("this consumer has no group to commit for; make it with group='...'")
        return self._member


def _subscription(topics: Iterable[str], pattern: str | None) -> Subscription | None:
    names = frozenset([topics] if isinstance(topics, str) else topics)
    if names and pattern is not None:
        raise WrongOption("topics and pattern exclude each other; give one of them")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise WrongOption(f"pattern={pattern!r} is no regular expression: {error}") from None
    return Subscription(names, pattern) if names or pattern is not None else None


def _isolation(level: str | Isolation) -> Isolation:
    if isinstance(level, Isolation):
        return level
    one_of("isolation_level", level, [name.name.lower() for name in Isolation])
    return Isolation[level.upper()]
