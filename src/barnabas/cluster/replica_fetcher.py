"""Copying from one leader: fetch what its partitions have more, append it as it is, and say so with the next fetch.

    fetch -> diverging epoch: truncate | records: append | out of range: begin where the leader's log begins -> fetch

One request is under way at a time, in an incremental session (KIP-227), so that a partition without news costs neither
end anything on the wire. The leader answers as soon as there is any news. A partition that is added meanwhile does not
wait for that: the request is broken off, together with its connection. Where one is added, more may follow, so the next
requests wait for a moment only, and need not be broken off.

What fails with one partition is tried again after a pause that grows, and leaves the others alone. So does a partition
that is throttled (`follower.replication.throttled.replicas`), for as long as what was copied of such takes at the rate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.core import logs
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.net.channel import Channel, UnsupportedByPeer
from barnabas.storage.leader_epochs import EpochEntry
from barnabas.wire.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from barnabas.wire.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

if TYPE_CHECKING:
    from barnabas.cluster.partition import Partition
    from barnabas.cluster.throttle import Throttle
    from barnabas.core.seams import Clock, Network
    from barnabas.storage.log import Log

_log = logs.get_logger(__name__)
_LATEST, _EARLIEST = -1, -2
_NO_SESSION = 0
_LAST_EPOCH = 2**31 - 1
_FIRST_PAUSE_SECONDS = 0.02
_PATIENCE_SECONDS = 0.02  # how long an added partition waits for a request that is under way
_HURRY_SECONDS = 1.0  # how long after one was added another is expected
_EXPECTED = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""While news of a change spreads, the leader knows of it later than we do, or earlier."""

Key = tuple[bytes, int]


class FetchSettings(NamedTuple):
    """What `replica.fetch.*` and `replica.socket.timeout.ms` say."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1 << 20
    response_max_bytes: int = 10 << 20
    backoff_ms: int = 1000
    timeout_ms: int = 30_000


class Surroundings(NamedTuple):
    """What a fetcher needs of its broker."""

    network: Network
    broker_id: int
    broker_epoch: Callable[[], int]
    address_of: Callable[[int], tuple[str, int] | None]
    """Host and port of a broker's inter-broker listener, if it is registered."""
    flush: Callable[[Log], asyncio.Future[int]]
    checkpoint: Callable[[Log], Coroutine[Any, Any, None]]
    disk_failed: Callable[[Partition, OSError], Any]
    throttle: Throttle
    clock: Clock


class _Copy:
    """One partition in one leader epoch."""

    __slots__ = ("failures", "leader_epoch", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.failures = 0

    @property
    def is_current(self) -> bool:
        return self.partition.leader_epoch == self.leader_epoch and not self.partition.log.is_offline

    def question(self, max_bytes: int) -> FetchPartition:
        log = self.partition.log
        return FetchPartition(
            partition=log.partition,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=log.log_end_offset,
            last_fetched_epoch=log.leader_epochs.latest,
            log_start_offset=log.log_start_offset,
            partition_max_bytes=max_bytes,
        )


def key_of(partition: Partition) -> Key:
    return partition.log.topic_id, partition.log.partition


class ReplicaFetcher:
    """Owned by the broker's loop; `run` is its task."""

    def __init__(self, leader_id: int, around: Surroundings, settings: FetchSettings) -> None:
        self.leader_id = leader_id
        self._around = around
        self._settings = settings
        self._copies: dict[Key, _Copy] = {}
        self._due: dict[Key, None] = {}  # to be asked for, or asked for anew, with the next fetch
        self._asked: dict[Key, _Copy] = {}  # what the session asks for
        self._unasked: dict[Key, str] = {}  # what it has yet to forget, with the topic's name
        self._session_id = _NO_SESSION
        self._session_epoch = 0
        self._channel: Channel | None = None
        self._work = asyncio.Event()
        self._breaking_off: asyncio.TimerHandle | None = None
        self._is_broken_off = False
        self._is_waiting = False
        self._is_patient = True  # the request that is under way waits as long as a leader may
        self._hurries_until = 0.0
        self._failures = 0
        self._timers: dict[Key, asyncio.TimerHandle] = {}

    @property
    def is_idle(self) -> bool:
        return not self._copies

    # what to copy

    def add(self, partition: Partition) -> None:
        key = key_of(partition)
        copy = self._copies.get(key)
        if copy is None or copy.leader_epoch != partition.leader_epoch or copy.partition is not partition:
            self._copies[key] = _Copy(partition)
            self._ask_soon(key)

    def drop(self, key: Key) -> None:
        self._copies.pop(key, None)
        self._unask(key)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _unask(self, key: Key) -> None:
        self._due.pop(key, None)
        copy = self._asked.pop(key, None)
        if copy is not None:
            self._unasked[key] = copy.partition.log.topic

    def _ask_soon(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._due[key] = None
        self._work.set()
        loop = asyncio.get_running_loop()
        self._hurries_until = loop.time() + _HURRY_SECONDS
        if self._is_waiting and self._is_patient and self._breaking_off is None:
            self._breaking_off = loop.call_later(_PATIENCE_SECONDS, self._break_off)

    def _break_off(self) -> None:
        self._breaking_off = None
        if self._is_waiting:
            self._is_broken_off = True
            self._disconnect()

    # the task

    async def run(self) -> None:
        try:
            while True:
                if not self._due and not self._asked:
                    self._work.clear()
                    await self._work.wait()
                await self._round()
        finally:
            self.close()

    async def _round(self) -> None:
        try:
            channel = self._channel or await self._connect()
            response = await self._ask(channel, self._request())
            await self._take(channel, response)
            self._failures = 0
        except (OSError, UnsupportedByPeer) as error:
            self._disconnect()
            if self._is_broken_off:
                self._is_broken_off = False
                return
            self._failures += 1
            if self._failures == 1:
                _log.warning("leader cannot be reached", leader=self.leader_id, problem=str(error))
            await asyncio.sleep(self._pause(self._failures))
        except Exception:  # whatever it was, the copying must go on
            _log.exception("copying from the leader failed", leader=self.leader_id)
            self._disconnect()
            self._failures += 1
            await asyncio.sleep(self._pause(self._failures))

    def _pause(self, failures: int) -> float:
        return min(float(_FIRST_PAUSE_SECONDS * 2 ** min(failures - 1, 16)), self._settings.backoff_ms / 1000)

    async def _connect(self) -> Channel:
        address = self._around.address_of(self.leader_id)
        if address is None:
            raise ConnectionError(f"broker {self.leader_id} is not registered")
        async with asyncio.timeout(self._settings.timeout_ms / 1000):
            self._channel = await Channel.open(
                self._around.network, *address, client_id=f"replica-{self._around.broker_id}"
            )
        self._forget_session()
        return self._channel

    async def _ask(self, channel: Channel, request: FetchRequest) -> FetchResponse:
        self._is_waiting = True
        try:
            async with asyncio.timeout(self._settings.timeout_ms / 1000):
                response: FetchResponse = await channel.request(request)
        finally:
            self._is_waiting = False
            if self._breaking_off is not None:
                self._breaking_off.cancel()
                self._breaking_off = None
        return response

    def _disconnect(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        self._forget_session()

    def _forget_session(self) -> None:
        """Begin another one with the next request, which names the old one so that the leader forgets it, too."""
        self._session_epoch = 0
        self._due.update(dict.fromkeys(self._asked))
        self._asked.clear()
        self._unasked.clear()

    def close(self) -> None:
        self._disconnect()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._breaking_off is not None:
            self._breaking_off.cancel()

    # asking

    def _request(self) -> FetchRequest:
        settings = self._settings
        if self._session_id == _NO_SESSION:
            self._forget_session()  # the leader has no room for another session
        topics: dict[bytes, FetchTopic] = {}
        for key in self._due:
            copy = self._copies[key]
            topic = topics.get(key[0])
            if topic is None:
                topic = topics[key[0]] = FetchTopic(copy.partition.log.topic, key[0])
            topic.partitions.append(copy.question(settings.max_bytes))
            self._asked[key] = copy
        self._due.clear()
        self._is_patient = asyncio.get_running_loop().time() >= self._hurries_until
        wait_max_ms = settings.wait_max_ms
        if not self._is_patient:
            wait_max_ms = min(wait_max_ms, int(_PATIENCE_SECONDS * 1000))
        return FetchRequest(
            replica_id=self._around.broker_id,
            replica_state=ReplicaState(self._around.broker_id, self._around.broker_epoch()),
            max_wait_ms=wait_max_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=list(topics.values()),
            forgotten_topics_data=self._forgotten(),
        )

    def _forgotten(self) -> list[ForgottenTopic]:
        """What the session asks for, but is no longer wanted from this leader, or not now."""
        forgotten: dict[bytes, ForgottenTopic] = {}
        for (topic_id, index), name in self._unasked.items():
            forgotten.setdefault(topic_id, ForgottenTopic(name, topic_id)).partitions.append(index)
        self._unasked.clear()
        return list(forgotten.values())

    # answers

    async def _take(self, channel: Channel, response: FetchResponse) -> None:
        if response.error_code:
            self._session_id = _NO_SESSION
            self._forget_session()
            if response.error_code not in (
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
            ):
                raise ConnectionError(f"the leader refuses to be copied from: {ErrorCode(response.error_code).name}")
            return
        self._session_id = response.session_id
        self._session_epoch = self._session_epoch + 1 if self._session_epoch < _LAST_EPOCH else 1
        flushes: list[asyncio.Future[Any]] = []
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                copy = self._copies.get(key)
                if copy is not None and copy is self._asked.get(key) and copy.is_current:
                    try:
                        await self._take_one(channel, key, copy, data, flushes)
                    except KafkaError as error:
                        self._put_off(key, copy, error.code, error.message)
                    except OSError as error:
                        if isinstance(error, ConnectionError | TimeoutError):
                            raise
                        self.drop(key)
                        self._around.disk_failed(copy.partition, error)
        if flushes:  # of a failing disk the log manager tells
            await asyncio.gather(*flushes, return_exceptions=True)

    async def _take_one(
        self, channel: Channel, key: Key, copy: _Copy, data: PartitionData, flushes: list[asyncio.Future[Any]]
    ) -> None:
        partition = copy.partition
        log = partition.log
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._find_leaders_log(channel, copy)
            self._due[key] = None
        elif data.error_code:
            raise KafkaError(ErrorCode(data.error_code))
        elif data.diverging_epoch.end_offset >= 0:
            had = log.log_end_offset
            partition.truncate_by_epoch(EpochEntry(data.diverging_epoch.epoch, data.diverging_epoch.end_offset))
            _log.info("log truncated where the leader's differs", topic=log.topic, partition=log.partition,
                      log_end_offset=had, truncated_to=log.log_end_offset)  # fmt: skip
            self._due[key] = None
        else:
            start = log.log_start_offset
            if data.records is not None and len(data.records):
                partition.append_copies(memoryview(data.records))
                self._ask_for_more(key, copy, len(data.records))
                if log.log_end_offset - log.flushed_offset >= log.config.flush_messages:
                    flushes.append(self._around.flush(log))
            partition.follow_leader(data.high_watermark, data.log_start_offset)
            if log.log_start_offset != start:
                self._due[key] = None
                # The next fetch tells the leader that this is gone, so it must not come back with a restart.
                flushes.append(asyncio.ensure_future(self._around.checkpoint(log)))
            copy.failures = 0

    def _ask_for_more(self, key: Key, copy: _Copy, copied_bytes: int) -> None:
        """With the next fetch, or when the throttle lets us."""
        partition, around = copy.partition, self._around
        if partition.is_throttled and around.broker_id not in partition.isr:
            now = around.clock.monotonic()
            around.throttle.record(copied_bytes, now)
            pause = around.throttle.wait_seconds(now)
            if pause > 0:
                self._unask(key)
                self._timers[key] = asyncio.get_running_loop().call_later(pause, self._resume, key)
                return
        self._due[key] = None

    def _resume(self, key: Key) -> None:
        """Ask for a partition again, with the next fetch: it is not worth breaking off the one under way."""
        self._timers.pop(key, None)
        self._due[key] = None
        self._work.set()

    async def _find_leaders_log(self, channel: Channel, copy: _Copy) -> None:
        """The leader does not have the offset that comes next here: its log begins later, or ended earlier."""
        partition, log = copy.partition, copy.partition.log
        start = await self._offset(channel, copy, _EARLIEST)
        end = await self._offset(channel, copy, _LATEST)
        if not copy.is_current:
            return
        had = (log.log_start_offset, log.log_end_offset)
        if start > log.log_end_offset:
            partition.restart_at(start)
        elif end < log.log_end_offset:
            partition.truncate(end)
        else:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"the leader has offsets {start} to {end}")
        _log.info("log begins where the leader's does", topic=log.topic, partition=log.partition, had=had,
                  log_start_offset=log.log_start_offset, log_end_offset=log.log_end_offset)  # fmt: skip

    async def _offset(self, channel: Channel, copy: _Copy, which: int) -> int:
        log = copy.partition.log
        question = ListOffsetsPartition(
            partition_index=log.partition, current_leader_epoch=copy.leader_epoch, timestamp=which
        )
        request = ListOffsetsRequest(
            replica_id=self._around.broker_id, topics=[ListOffsetsTopic(name=log.topic, partitions=[question])]
        )
        async with asyncio.timeout(self._settings.timeout_ms / 1000):
            response = await channel.request(request)
        (found,) = response.topics[0].partitions
        if found.error_code:
            raise KafkaError(ErrorCode(found.error_code))
        return int(found.offset)

    def _put_off(self, key: Key, copy: _Copy, code: ErrorCode, problem: str) -> None:
        """Try a partition again in a while; until then the session forgets it."""
        copy.failures += 1
        if code not in _EXPECTED:
            log = copy.partition.log
            _log.warning("partition cannot be copied", topic=log.topic, partition=log.partition,
                         leader=self.leader_id, error=code.name, problem=problem)  # fmt: skip
        self._unask(key)
        pause = self._pause(copy.failures)
        self._timers[key] = asyncio.get_running_loop().call_later(pause, self._ask_soon, key)
