"""A consumer's fetch: read what there is, wait while it is too little, answer.

A leader that knows of a replica in the consumer's rack answers with that replica's id instead of records, and the
consumer goes there (KIP-392). A follower serves what it knows to be committed, which it hears from its leader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from barnabas.broker.dispatch import Later
from barnabas.cluster.delayed import DelayedFetch
from barnabas.cluster.partition import READ_COMMITTED
from barnabas.cluster.replica_selection import NOBODY_ELSE, nearer_replica
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k01_fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

if TYPE_CHECKING:
    from asyncio import Future

    from barnabas.broker.dispatch import Context
    from barnabas.broker.fetch_sessions import FetchSession, Wanted
    from barnabas.cluster.partition import Partition
    from barnabas.storage.log_slice import LogSlice

KEY = 1
_FIRST_VERSION_WITH_RACK = 11
NOT_URGENT = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
"""Errors that wait with the others: who is assigned to what is gone would else ask again without a pause."""

Results = list[tuple["Wanted", PartitionData]]


class Fetch:
    """One request, tried at once and, if there is too little, again when there is more or time is up."""

    __slots__ = (
        "_broker", "_by_topic_id", "_follower_bytes", "_later", "_leader_bytes", "_listener", "_or_follower", "_rack",
        "_request", "_session", "_wanted",
    )  # fmt: skip

    def __init__(self, request: FetchRequest, context: Context, session: FetchSession) -> None:
        self._broker = context.broker
        self._request = request
        self._session = session
        self._by_topic_id = session.by_topic_id
        self._wanted: Sequence[Wanted] = ()
        self._later: Later[FetchResponse] | None = None
        self._or_follower = context.version >= _FIRST_VERSION_WITH_RACK
        self._rack = request.rack_id if self._or_follower and context.broker.reads_by_rack else ""
        self._listener = context.listener
        self._leader_bytes = self._follower_bytes = 0

    def start(self) -> FetchResponse | Later[FetchResponse]:
        request = self._request
        self._wanted = tuple(self._session.wanted.values())  # as they are now: a session may go on meanwhile
        results, size, partitions = self._read()
        if size >= request.min_bytes or request.max_wait_ms <= 0 or not partitions:
            return self._respond(results)
        delayed = DelayedFetch(
            self._broker.call_later,
            self._wait_seconds,
            request.min_bytes - size,
            partitions,
            self._try_again,
            read_committed=request.isolation_level == READ_COMMITTED,
        )
        self._later = Later(delayed.abandon)
        return self._later

    @property
    def _wait_seconds(self) -> float:
        # A connection with many requests under way is not read, so that its end would not be seen while they wait.
        return min(self._request.max_wait_ms / 1000, self._broker.server.limits.max_idle_seconds)

    def _try_again(self) -> None:
        self._complete(self._read()[0])

    def _complete(self, results: Results) -> None:
        assert self._later is not None
        response = self._respond(results)
        if response is not self._later:
            self._later.complete(response)  # type: ignore[arg-type]

    def _read(self) -> tuple[Results, int, list[Partition]]:
        """What there is now, its size, and the partitions to wait for: none if something must be told at once."""
        broker, request = self._broker, self._request
        isolation_level = request.isolation_level
        left = min(request.max_bytes, broker.fetch_max_bytes)
        size = follower_bytes = 0
        results: Results = []
        partitions: list[Partition] = []
        urgent = False
        for wanted in self._wanted:
            asked = wanted.partition
            data = PartitionData(partition_index=asked.partition, records=b"")
            results.append((wanted, data))
            try:
                partition = self._partition(wanted)
                offset = asked.fetch_offset
                if (asked.last_fetched_epoch >= 0 and self._diverges(partition, wanted, data)) or (
                    self._rack and self._is_nearer_elsewhere(partition, wanted, data)
                ):
                    urgent = True
                    continue
                found = partition.read(
                    offset,
                    min(asked.partition_max_bytes, left),
                    isolation_level,
                    asked.current_leader_epoch,
                    not size,
                    or_follower=self._or_follower,
                )
                aborted = _aborted(partition, offset, found) if isolation_level == READ_COMMITTED else None
            except KafkaError as error:
                urgent = urgent or error.code not in NOT_URGENT
                self._refuse(wanted, data, error.code)
                continue
            except OSError as error:
                urgent = True
                self._refuse(wanted, data, self._disk_failed(wanted, error))
                continue
            log = partition.log
            data.high_watermark = log.high_watermark
            data.last_stable_offset = log.last_stable_offset
            data.log_start_offset = log.log_start_offset
            data.aborted_transactions = aborted
            partitions.append(partition)
            if len(found):
                if offset == wanted.sent_from:  # they were of no use, for their checksum is wrong, say
                    broker.manager.scrubber.suspect(log, offset)
                data.records = found
                size += len(found)
                left = max(0, left - len(found))
                if not partition.is_leader:
                    follower_bytes += len(found)
        self._follower_bytes = follower_bytes
        self._leader_bytes = size - follower_bytes
        return results, size, [] if urgent else partitions

    def _diverges(self, partition: Partition, wanted: Wanted, data: PartitionData) -> bool:
        """Whether the reader has something else than this log; if so, `data` says where that begins."""
        asked = wanted.partition
        partition.check_leader(asked.current_leader_epoch, or_follower=self._or_follower)
        diverging = partition.divergence(asked.fetch_offset, asked.last_fetched_epoch)
        if diverging is None:
            return False
        describe(partition, data)
        data.diverging_epoch = EpochEndOffset(*diverging)
        return True

    def _is_nearer_elsewhere(self, partition: Partition, wanted: Wanted, data: PartitionData) -> bool:
        """Whether another replica is nearer to the reader; if so, `data` says which."""
        if not partition.is_leader:
            return False
        asked = wanted.partition
        partition.check_leader(asked.current_leader_epoch)
        brokers = self._broker.metadata.image.brokers
        chosen = nearer_replica(partition, asked.fetch_offset, self._rack, brokers, self._listener)
        if chosen == NOBODY_ELSE:
            return False
        describe(partition, data)
        data.preferred_read_replica = chosen
        return True

    def _refuse(self, wanted: Wanted, data: PartitionData, code: ErrorCode) -> None:
        if code is ErrorCode.CORRUPT_MESSAGE:  # which the log itself has told
            self._broker.manager.scrubber.suspect(self._partition(wanted).log, wanted.partition.fetch_offset)
        data.error_code = code
        data.high_watermark = data.last_stable_offset = data.log_start_offset = -1
        data.records = b""
        self._broker.metrics.error(KEY, code)

    def _partition(self, wanted: Wanted) -> Partition:
        replicas = self._broker.replicas
        topic = replicas.name_of(wanted.topic_id) if self._by_topic_id else wanted.topic
        return replicas.get(topic, wanted.partition.partition)

    def _respond(self, results: Results) -> FetchResponse | Later[FetchResponse]:
        """The response, at once if everything lies in memory, or later when the cold parts have been read there."""
        self._count()
        topics: list[FetchableTopicResponse] = []
        topic: FetchableTopicResponse | None = None
        cold: Results = []
        for wanted, data in self._session.select(results):
            if topic is None or topic.topic != wanted.topic or topic.topic_id != wanted.topic_id:
                topic = FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id)
                topics.append(topic)
            topic.partitions.append(data)
            if data.records and not data.records.is_cached():
                cold.append((wanted, data))
        response = FetchResponse(session_id=self._session.id, responses=topics)
        if not cold:
            return response
        later = self._later = self._later or Later()
        warmed = self._broker.executor.submit(_warm, [data.records for _, data in cold])
        warmed.add_done_callback(lambda done: self._warmed(done, cold, response, later))
        return later

    def _count(self) -> None:
        fetched = self._broker.metrics.fetched_bytes
        fetched["consumer", "leader"] += self._leader_bytes
        fetched["consumer", "follower"] += self._follower_bytes

    def _warmed(
        self,
        done: Future[list[OSError | None]],
        cold: Results,
        response: FetchResponse,
        later: Later[FetchResponse],
    ) -> None:
        if done.cancelled():
            return  # the broker stops
        for (wanted, data), error in zip(cold, done.result()):
            if error is not None:
                self._refuse(wanted, data, self._disk_failed(wanted, error))
        later.complete(response)

    def _disk_failed(self, wanted: Wanted, error: OSError) -> ErrorCode:
        try:
            return self._broker.replicas.disk_failed(self._partition(wanted), error)
        except KafkaError as refusal:  # it has failed before, or is no longer ours
            return refusal.code


def _aborted(partition: Partition, offset: int, found: LogSlice) -> list[AbortedTransaction]:
    """The transactions whose records a reader is to leave out of what was found."""
    if not len(found):
        return []
    return [
        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in partition.log.aborted_transactions(offset, found.next_offset)
    ]


def describe(partition: Partition, data: PartitionData) -> None:
    """Fill in how far a partition is."""
    log = partition.log
    data.high_watermark = log.high_watermark
    data.last_stable_offset = log.last_stable_offset
    data.log_start_offset = log.log_start_offset
    data.aborted_transactions = None


def _warm(slices: list[Any]) -> list[OSError | None]:
    """Read what the page cache has lost, in a thread, so that sending it does not keep the loop waiting.

    A disk that fails shows here first: tells, for each slice, what went wrong.
    """
    return [_failure(cold) for cold in slices]


def _failure(cold: Any) -> OSError | None:
    try:
        cold.warm()
    except OSError as error:
        return error
    return None
