"""Fetch 4-18: record batches as they lie on disk, from an offset on, up to the watermark.

Waits until `min_bytes` can be read or `max_wait_ms` is over. `max_bytes` bounds the response and
`partition_max_bytes` each partition, but the first batch of the first partition that has one is always whole, or a
consumer with a small limit could never get past a large batch (KIP-74).

- 7: incremental sessions (KIP-227). 9: leader epochs (KIP-320). 10: zstd may be inside.
- 12: tagged fields; the response tells where the reader's log diverged. 13: topics by id (KIP-516). 15: replica state
  (KIP-903).

A fetch that claims to come from a replica is believed only on the inter-broker listener, and there only with the epoch
of a broker that is registered and that the partition is assigned to. It may read to the log's end, and it tells how far
that replica has come. It is answered as soon as there is anything new: records, or another watermark or log start.

Follower reads by rack (version 11) are not offered: the leader serves all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from barnabas.broker.dispatch import Later
from barnabas.broker.fetch_sessions import NO_SESSION
from barnabas.cluster.delayed import DelayedFetch
from barnabas.cluster.partition import READ_COMMITTED
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

_KEY = 1
_FIRST_VERSION_BY_TOPIC_ID = 13
_FIRST_VERSION_WITH_STATE = 15
_NOT_URGENT = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
"""Errors that wait with the others: who is assigned to what is gone would else ask again without a pause."""


def handle(request: FetchRequest, context: Context) -> FetchResponse | Later[FetchResponse]:
    broker = context.broker
    by_topic_id = context.version >= _FIRST_VERSION_BY_TOPIC_ID
    try:
        session = broker.fetch_sessions.begin(request, by_topic_id, broker.clock.now_ms())
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    replica_id = request.replica_id if context.version < _FIRST_VERSION_WITH_STATE else request.replica_state.replica_id
    fetch = _Fetch(request, context, session) if replica_id < 0 else _ReplicaFetch(request, context, session)
    return fetch.start()


class _Fetch:
    """One request, tried at once and, if there is too little, again when there is more or time is up."""

    __slots__ = ("_broker", "_by_topic_id", "_later", "_request", "_session", "_wanted")

    def __init__(self, request: FetchRequest, context: Context, session: FetchSession) -> None:
        self._broker = context.broker
        self._request = request
        self._session = session
        self._by_topic_id = session.by_topic_id
        self._wanted: Sequence[Wanted] = tuple(session.wanted.values())
        self._later: Later[FetchResponse] | None = None

    def start(self) -> FetchResponse | Later[FetchResponse]:
        request = self._request
        results, size, partitions = self._read()
        if size >= request.min_bytes or request.max_wait_ms <= 0 or not partitions:
            return self._respond(results)
        return self._wait(request.min_bytes - size, partitions, for_replica=False)

    def _wait(self, missing_bytes: int, partitions: list[Partition], *, for_replica: bool) -> Later[FetchResponse]:
        broker = self._broker
        # A connection with many requests under way is not read, so that its end would not be seen while they wait.
        wait_seconds = min(self._request.max_wait_ms / 1000, broker.server.limits.max_idle_seconds)
        delayed = DelayedFetch(
            broker.call_later, wait_seconds, missing_bytes, partitions, self._woken, for_replica=for_replica
        )
        self._later = Later(delayed.abandon)
        return self._later

    def _woken(self) -> None:
        self._try_again()

    def _try_again(self) -> None:
        assert self._later is not None
        response = self._respond(self._read()[0])
        if response is not self._later:
            self._later.complete(response)  # type: ignore[arg-type]

    def _read(self) -> tuple[list[tuple[Wanted, PartitionData]], int, list[Partition]]:
        """What there is now, its size, and the partitions to wait for: none if an error must be told at once."""
        broker, request = self._broker, self._request
        isolation_level = request.isolation_level
        left = min(request.max_bytes, broker.fetch_max_bytes)
        size = 0
        results: list[tuple[Wanted, PartitionData]] = []
        partitions: list[Partition] = []
        urgent = False
        for wanted in self._wanted:
            asked = wanted.partition
            data = PartitionData(partition_index=asked.partition, records=b"")
            results.append((wanted, data))
            try:
                partition = self._partition(wanted)
                offset = asked.fetch_offset
                if asked.last_fetched_epoch >= 0 and self._diverges(partition, wanted, data):
                    urgent = True
                    continue
                found = partition.read(
                    offset,
                    min(asked.partition_max_bytes, left),
                    isolation_level,
                    asked.current_leader_epoch,
                    not size,
                )
            except KafkaError as error:
                urgent = urgent or error.code not in _NOT_URGENT
                self._refuse(data, error.code)
                continue
            except OSError as error:
                urgent = True
                self._refuse(data, self._disk_failed(wanted, error))
                continue
            log = partition.log
            data.high_watermark = log.high_watermark
            data.last_stable_offset = log.last_stable_offset
            data.log_start_offset = log.log_start_offset
            data.aborted_transactions = None
            partitions.append(partition)
            if len(found):
                data.records = found
                size += len(found)
                left = max(0, left - len(found))
                if isolation_level == READ_COMMITTED:
                    data.aborted_transactions = [
                        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                        for aborted in log.aborted_transactions(offset, found.next_offset)
                    ]
            elif isolation_level == READ_COMMITTED:
                data.aborted_transactions = []
        return results, size, [] if urgent else partitions

    def _diverges(self, partition: Partition, wanted: Wanted, data: PartitionData) -> bool:
        """Whether the reader has something else than this log; if so, `data` says where that begins."""
        asked = wanted.partition
        partition.check_leader(asked.current_leader_epoch)
        diverging = partition.divergence(asked.fetch_offset, asked.last_fetched_epoch)
        if diverging is None:
            return False
        log = partition.log
        data.diverging_epoch = EpochEndOffset(*diverging)
        data.high_watermark = log.high_watermark
        data.last_stable_offset = log.last_stable_offset
        data.log_start_offset = log.log_start_offset
        return True

    def _refuse(self, data: PartitionData, code: ErrorCode) -> None:
        data.error_code = code
        data.high_watermark = data.last_stable_offset = data.log_start_offset = -1
        data.records = b""
        self._broker.metrics.error(_KEY, code)

    def _partition(self, wanted: Wanted) -> Partition:
        replicas = self._broker.replicas
        topic = replicas.name_of(wanted.topic_id) if self._by_topic_id else wanted.topic
        return replicas.get(topic, wanted.partition.partition)

    def _respond(self, results: list[tuple[Wanted, PartitionData]]) -> FetchResponse | Later[FetchResponse]:
        """The response, at once if everything lies in memory, or later when the cold parts have been read there."""
        topics: list[FetchableTopicResponse] = []
        topic: FetchableTopicResponse | None = None
        cold: list[tuple[Wanted, PartitionData]] = []
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

    def _warmed(
        self,
        done: Future[list[OSError | None]],
        cold: list[tuple[Wanted, PartitionData]],
        response: FetchResponse,
        later: Later[FetchResponse],
    ) -> None:
        if done.cancelled():
            return  # the broker stops
        for (wanted, data), error in zip(cold, done.result()):
            if error is not None:
                self._refuse(data, self._disk_failed(wanted, error))
        later.complete(response)

    def _disk_failed(self, wanted: Wanted, error: OSError) -> ErrorCode:
        try:
            return self._broker.replicas.disk_failed(self._partition(wanted), error)
        except KafkaError as refusal:  # it has failed before, or is no longer ours
            return refusal.code


class _ReplicaFetch(_Fetch):
    """The fetch of another broker, which copies what this one leads."""

    __slots__ = ("_is_noted", "_is_registered", "_may_join", "_replica_epoch", "_replica_id", "_trusted")

    def __init__(self, request: FetchRequest, context: Context, session: FetchSession) -> None:
        super().__init__(request, context, session)
        state = request.replica_state
        has_state = context.version >= _FIRST_VERSION_WITH_STATE
        self._replica_id = state.replica_id if has_state else request.replica_id
        self._replica_epoch = state.replica_epoch if has_state else -1
        self._trusted = context.listener == context.broker.inter_broker_listener
        registered = context.broker.metadata.image.brokers.get(self._replica_id)
        self._is_registered = registered is not None and registered.epoch == self._replica_epoch
        self._may_join = registered is not None and registered.may_lead
        self._is_noted = False

    def start(self) -> FetchResponse | Later[FetchResponse]:
        results, size, partitions = self._read()
        self._is_noted = True
        request = self._request
        is_news = bool(results) and self._session.id != NO_SESSION
        if is_news or size >= request.min_bytes or request.max_wait_ms <= 0 or not partitions:
            return self._respond(results)
        return self._wait(request.min_bytes - size, partitions, for_replica=True)

    def _woken(self) -> None:
        """Answer once all requests of this turn have been worked on, with what they all have appended."""
        self._broker.server.network.soon(self._try_again)

    def _read(self) -> tuple[list[tuple[Wanted, PartitionData]], int, list[Partition]]:
        """What is new to the replica. On the first call, what it asks for is noted as what it has."""
        broker = self._broker
        now_ms = int(broker.clock.monotonic() * 1000)
        left = min(self._request.max_bytes, broker.fetch_max_bytes)
        size = 0
        results: list[tuple[Wanted, PartitionData]] = []
        partitions: list[Partition] = []
        urgent = False
        for wanted in self._wanted:
            asked = wanted.partition
            offset = asked.fetch_offset
            data: PartitionData | None = None
            try:
                partition = self._partition(wanted)
                log = partition.log
                partition.check_leader(asked.current_leader_epoch)
                if asked.last_fetched_epoch >= 0:
                    diverging = partition.divergence(offset, asked.last_fetched_epoch)
                    if diverging is not None:
                        urgent = True
                        data = _described(partition, asked.partition)
                        data.diverging_epoch = EpochEndOffset(*diverging)
                        results.append((wanted, data))
                        continue
                if not self._is_noted:
                    log.check_readable(offset)
                    partition.follower_fetched(
                        self._replica_id,
                        self._replica_epoch,
                        offset,
                        asked.log_start_offset,
                        now_ms,
                        may_join=self._may_join,
                    )
                partitions.append(partition)
                if offset == log.log_end_offset and self._session.is_incremental and wanted.is_told(log):
                    continue
                found = log.read(offset, min(asked.partition_max_bytes, left), log.log_end_offset, not size)
                data = _described(partition, asked.partition)
            except KafkaError as error:
                urgent = urgent or error.code not in _NOT_URGENT
                data = PartitionData(asked.partition)
                self._refuse(data, error.code)
            except OSError as error:
                urgent = True
                data = PartitionData(asked.partition)
                self._refuse(data, self._disk_failed(wanted, error))
            else:
                if len(found):
                    data.records = found
                    size += len(found)
                    left = max(0, left - len(found))
            results.append((wanted, data))
        return results, size, [] if urgent else partitions

    def _partition(self, wanted: Wanted) -> Partition:
        if not self._trusted:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = super()._partition(wanted)
        if not self._is_registered or self._replica_id not in partition.replicas:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return partition


def _described(partition: Partition, index: int) -> PartitionData:
    log = partition.log
    return PartitionData(
        partition_index=index,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=None,
        records=b"",
    )


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
