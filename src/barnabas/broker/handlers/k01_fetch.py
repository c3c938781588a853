"""Fetch 4-18: record batches as they lie on disk, from an offset on, up to the watermark.

Waits until `min_bytes` can be read or `max_wait_ms` is over. `max_bytes` bounds the response and
`partition_max_bytes` each partition, but the first batch of the first partition that has one is always whole, or a
consumer with a small limit could never get past a large batch (KIP-74).

- 7: incremental sessions (KIP-227). 9: leader epochs (KIP-320). 10: zstd may be inside.
- 12: tagged fields. 13: topics by id (KIP-516). 15: replica state (KIP-903).

A fetch that claims to come from a replica is believed only on the inter-broker listener, and there only from another
broker that the partition is assigned to. Follower reads by rack (version 11) are not offered: the leader serves all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from barnabas.broker.dispatch import Later
from barnabas.cluster.delayed import DelayedFetch
from barnabas.cluster.partition import READ_COMMITTED
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k01_fetch import (
    AbortedTransaction,
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
_NOT_URGENT = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
"""Errors that wait with the others: who is assigned to what is gone would else ask again without a pause."""


def handle(request: FetchRequest, context: Context) -> FetchResponse | Later[FetchResponse]:
    broker = context.broker
    by_topic_id = context.version >= _FIRST_VERSION_BY_TOPIC_ID
    try:
        session = broker.fetch_sessions.begin(request, by_topic_id, broker.clock.now_ms())
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    return _Fetch(request, context, session).start()


class _Fetch:
    """One request, tried at once and, if there is too little, again when there is more or time is up."""

    __slots__ = ("_broker", "_by_topic_id", "_later", "_replica_id", "_request", "_session", "_trusted", "_wanted")

    def __init__(self, request: FetchRequest, context: Context, session: FetchSession) -> None:
        self._broker = context.broker
        self._request = request
        self._session = session
        self._by_topic_id = session.by_topic_id
        self._wanted: Sequence[Wanted] = tuple(session.wanted.values())
        self._later: Later[FetchResponse] | None = None
        replica_id = request.replica_id if context.version < 15 else request.replica_state.replica_id
        self._replica_id = replica_id
        self._trusted = replica_id < 0 or context.listener == context.broker.inter_broker_listener

    def start(self) -> FetchResponse | Later[FetchResponse]:
        request = self._request
        results, size, partitions = self._read()
        if size >= request.min_bytes or request.max_wait_ms <= 0 or not partitions:
            return self._respond(results)
        # A connection with many requests under way is not read, so that its end would not be seen while they wait.
        wait_seconds = min(request.max_wait_ms / 1000, self._broker.server.limits.max_idle_seconds)
        delayed = DelayedFetch(
            self._broker.call_later, wait_seconds, request.min_bytes - size, partitions, self._try_again
        )
        self._later = Later(delayed.abandon)
        return self._later

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

    def _refuse(self, data: PartitionData, code: ErrorCode) -> None:
        data.error_code = code
        data.high_watermark = data.last_stable_offset = data.log_start_offset = -1
        data.records = b""
        self._broker.metrics.error(_KEY, code)

    def _partition(self, wanted: Wanted) -> Partition:
        replicas = self._broker.replicas
        topic = replicas.name_of(wanted.topic_id) if self._by_topic_id else wanted.topic
        if not self._trusted:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = replicas.get(topic, wanted.partition.partition)
        if self._replica_id >= 0 and (
            self._replica_id == partition.broker_id or self._replica_id not in partition.replicas
        ):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return partition

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
