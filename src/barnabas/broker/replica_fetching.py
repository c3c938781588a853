"""The fetch of another broker, which copies what this one leads.

It is believed only on the inter-broker listener, and there only with the epoch of a broker that is registered and that
the partition is assigned to (KIP-903). It may read to the log's end, and it tells how far that replica has come.

It is answered as soon as there is anything to copy. A watermark that has moved is told with that, or when the wait is
over: a round trip for each would cost as much again as the copying. Only where consumers read from followers, which
wait for it there, is it told at once.

A replica that is not in sync may be throttled (`leader.replication.throttled.replicas`): beyond the rate its partitions
are passed over, and the others are served as ever.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from barnabas.broker.copied_partitions import CopiedPartitions
from barnabas.broker.dispatch import Later
from barnabas.broker.fetch_sessions import NO_SESSION
from barnabas.broker.fetching import NOT_URGENT, Fetch, Results, describe
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k01_fetch import FetchRequest, FetchResponse, PartitionData

if TYPE_CHECKING:
    from asyncio import TimerHandle

    from barnabas.broker.dispatch import Context
    from barnabas.broker.fetch_sessions import FetchSession, Wanted
    from barnabas.cluster.partition import Partition
    from barnabas.storage.log_slice import LogSlice

_FIRST_VERSION_WITH_STATE = 15


def replica_of(request: FetchRequest, context: Context) -> CopiedPartitions | None:
    """What a new session of the replica would begin with; None if the request comes from a consumer."""
    if context.version >= _FIRST_VERSION_WITH_STATE:
        replica_id, epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
    else:
        replica_id, epoch = request.replica_id, -1
    if replica_id < 0:
        return None
    is_believed = _is_trusted(context) and _is_registered(context, replica_id, epoch)
    return CopiedPartitions(replica_id, epoch, is_believed=is_believed)


def _is_trusted(context: Context) -> bool:
    return context.listener == context.broker.inter_broker_listener


def _is_registered(context: Context, replica_id: int, epoch: int) -> bool:
    registered = context.broker.metadata.image.brokers.get(replica_id)
    return registered is not None and registered.epoch == epoch


class ReplicaFetch(Fetch):
    """One request; what is due in its session is looked at, and what rests there is not."""

    __slots__ = (
        "_copied", "_held_back_seconds", "_is_done", "_is_noted", "_is_registered", "_is_woken", "_may_join",
        "_throttled_bytes", "_timer", "_trusted",
    )  # fmt: skip

    def __init__(
        self, request: FetchRequest, context: Context, session: FetchSession, copied: CopiedPartitions
    ) -> None:
        super().__init__(request, context, session)
        self._or_follower = False  # only the leader knows who has what
        self._copied = copied
        self._trusted = _is_trusted(context)
        self._is_registered = _is_registered(context, copied.replica_id, copied.broker_epoch)
        registered = context.broker.metadata.image.brokers.get(copied.replica_id)
        self._may_join = registered is not None and registered.may_lead
        self._is_noted = False
        self._is_woken = False
        self._is_done = False
        self._held_back_seconds = math.inf
        self._throttled_bytes = 0
        self._timer: TimerHandle | None = None

    def start(self) -> FetchResponse | Later[FetchResponse]:
        copied, session, request = self._copied, self._session, self._request
        is_first = session.id != NO_SESSION and not session.is_incremental
        if is_first and copied.is_believed:
            self._broker.fetch_sessions.drop_replica(copied.replica_id, copied.broker_epoch)
        copied.fetched_ms = int(self._broker.clock.monotonic() * 1000)
        results, is_urgent = self._look()
        self._is_noted = True
        if is_first or is_urgent or request.max_wait_ms <= 0:
            return self._finish(results)
        seconds = min(self._wait_seconds, self._held_back_seconds)
        self._timer = self._broker.call_later(seconds, self._time_is_up)
        copied.waiting = self._woken
        self._later = Later(self._abandon)
        return self._later

    def _woken(self) -> None:
        """Look once all requests of this turn have been worked on, for what they all have appended."""
        if not self._is_woken:
            self._is_woken = True
            self._broker.server.network.soon(self._look_again)

    def _look_again(self) -> None:
        self._is_woken = False
        if not self._is_done:
            results, is_urgent = self._look()
            if is_urgent:
                self._complete(results)

    def _time_is_up(self) -> None:
        self._complete(self._look()[0])

    def _complete(self, results: Results) -> None:
        self._abandon()
        assert self._later is not None
        response = self._finish(results)
        if response is not self._later:
            self._later.complete(response)  # type: ignore[arg-type]

    def _abandon(self) -> None:
        self._is_done = True
        if self._timer is not None:
            self._timer.cancel()
        if self._copied.waiting == self._woken:
            self._copied.waiting = None
        if self._session.id == NO_SESSION:
            self._copied.close()

    def _finish(self, results: Results) -> FetchResponse | Later[FetchResponse]:
        response = self._respond(results)
        if self._session.id == NO_SESSION:
            self._copied.close()
        return response

    def _count(self) -> None:
        self._broker.metrics.fetched_bytes["replica", "leader"] += self._leader_bytes
        if self._throttled_bytes:
            self._broker.leader_throttle.record(self._throttled_bytes, self._broker.clock.monotonic())

    def _look(self) -> tuple[Results, bool]:
        """What is new to the replica, and whether it should know at once.

        On the first call, what it asks for is noted as what it has.
        """
        broker, copied = self._broker, self._copied
        now = broker.clock.monotonic()
        left = min(self._request.max_bytes, broker.fetch_max_bytes)
        size = 0
        results: Results = []
        is_urgent = False
        self._held_back_seconds = math.inf
        self._throttled_bytes = 0
        for wanted in list(copied.due):
            data = PartitionData(wanted.partition.partition, records=b"")
            try:
                partition = self._partition(wanted)
                log = partition.log
                offset = wanted.partition.fetch_offset
                if self._diverges(partition, wanted, data):
                    is_urgent = True
                    results.append((wanted, data))
                    continue
                copied.watch(wanted, partition, watermark=broker.reads_by_rack)
                if not self._is_noted:
                    self._note(partition, wanted, int(now * 1000))
                if offset == log.log_end_offset:
                    if not wanted.is_told(log):
                        is_urgent = is_urgent or broker.reads_by_rack or wanted.log_start_offset != log.log_start_offset
                    elif offset == log.high_watermark and partition.is_settled(copied.replica_id):
                        copied.rest(wanted)
                        continue
                    found = None
                else:
                    found = self._copy(
                        partition, wanted, min(wanted.partition.partition_max_bytes, left), not size, now
                    )
            except KafkaError as error:
                is_urgent = is_urgent or error.code not in NOT_URGENT
                self._refuse(wanted, data, error.code)
            except OSError as error:
                is_urgent = True
                self._refuse(wanted, data, self._disk_failed(wanted, error))
            else:
                describe(partition, data)
                if found:
                    data.records = found
                    size += len(found)
                    left = max(0, left - len(found))
            results.append((wanted, data))
        self._leader_bytes = size
        return results, is_urgent or size >= max(1, self._request.min_bytes)

    def _note(self, partition: Partition, wanted: Wanted, now_ms: int) -> None:
        """What the replica asks for comes after what it has. If it asks again, it may not have got valid batches."""
        asked = wanted.partition
        partition.log.check_readable(asked.fetch_offset)
        asks_again = partition.follower_fetched(
            self._copied.replica_id,
            self._copied.broker_epoch,
            asked.fetch_offset,
            asked.log_start_offset,
            now_ms,
            may_join=self._may_join,
        )
        if asks_again:
            self._broker.manager.scrubber.suspect(partition.log, asked.fetch_offset)

    def _copy(
        self, partition: Partition, wanted: Wanted, max_bytes: int, min_one_batch: bool, now: float
    ) -> LogSlice | None:
        """What comes next for the replica; None where it is throttled and has had its share."""
        log, offset = partition.log, wanted.partition.fetch_offset
        if not partition.throttles_followers or self._copied.replica_id in partition.isr:
            return log.read(offset, max_bytes, log.log_end_offset, min_one_batch)
        throttle = self._broker.leader_throttle
        wait = throttle.wait_seconds(now)
        share = throttle.share_bytes - self._throttled_bytes
        if wait > 0 or share <= 0:
            self._held_back_seconds = min(self._held_back_seconds, wait)
            return None
        found = log.read(offset, min(max_bytes, share), log.log_end_offset, min_one_batch)
        self._throttled_bytes += len(found)
        return found

    def _diverges(self, partition: Partition, wanted: Wanted, data: PartitionData) -> bool:
        asked = wanted.partition
        if asked.last_fetched_epoch < 0:
            partition.check_leader(asked.current_leader_epoch)
            return False
        return super()._diverges(partition, wanted, data)

    def _partition(self, wanted: Wanted) -> Partition:
        if not self._trusted:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = super()._partition(wanted)
        if not self._is_registered or self._copied.replica_id not in partition.replicas:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return partition
