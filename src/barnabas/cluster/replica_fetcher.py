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

from barnabas.cluster.copy_session import Copy, CopySession, FetchSettings, Key, key_of
from barnabas.core import logs
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.net.channel import Channel, UnsupportedByPeer
from barnabas.storage.leader_epochs import EpochEntry
from barnabas.wire.messages.k01_fetch import FetchRequest, FetchResponse, PartitionData, ReplicaState
from barnabas.wire.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

if TYPE_CHECKING:
    from barnabas.cluster.partition import Partition
    from barnabas.cluster.throttle import Throttle
    from barnabas.core.seams import Clock, Network
    from barnabas.storage.log import Log

_log = logs.get_logger(__name__)
_LATEST, _EARLIEST = -1, -2
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


class ReplicaFetcher:
    """Owned by the broker's loop; `run` is its task."""

    def __init__(self, leader_id: int, around: Surroundings, settings: FetchSettings) -> None:
        self.leader_id = leader_id
        self._around = around
        self._settings = settings
        self._copies: dict[Key, Copy] = {}
        self._session = CopySession()
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
            self._copies[key] = Copy(partition)
            self._ask_soon(key)

    def drop(self, key: Key) -> None:
        self._copies.pop(key, None)
        self._session.unask(key)
        self._cancel_timer(key)

    def _ask_again(self, key: Key, copy: Copy) -> None:
        """With the next request, unless the partition is no longer to be copied, or from another leader."""
        if self._copies.get(key) is copy:
            self._session.ask(key, copy)

    def _ask_soon(self, key: Key) -> None:
        self._resume(key)
        loop = asyncio.get_running_loop()
        self._hurries_until = loop.time() + _HURRY_SECONDS
        if self._is_waiting and self._is_patient and self._breaking_off is None:
            self._breaking_off = loop.call_later(_PATIENCE_SECONDS, self._break_off)

    def _resume(self, key: Key) -> None:
        """Ask for a partition with the next request: it need not be worth breaking off the one under way."""
        self._cancel_timer(key)
        self._session.ask(key, self._copies[key])
        self._work.set()

    def _ask_later(self, key: Key, seconds: float, ask: Callable[[Key], None]) -> None:
        """Until then the session does without the partition."""
        self._session.unask(key)
        self._cancel_timer(key)
        self._timers[key] = asyncio.get_running_loop().call_later(seconds, ask, key)

    def _cancel_timer(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _break_off(self) -> None:
        self._breaking_off = None
        if self._is_waiting:
            self._is_broken_off = True
            self._disconnect()

    # the task

    async def run(self) -> None:
        try:
            while True:
                if self._session.is_empty:
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
        self._session.begin_anew()
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
        self._session.begin_anew()

    def close(self) -> None:
        self._disconnect()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._breaking_off is not None:
            self._breaking_off.cancel()

    def _request(self) -> FetchRequest:
        self._is_patient = asyncio.get_running_loop().time() >= self._hurries_until
        wait_max_ms = self._settings.wait_max_ms
        if not self._is_patient:
            wait_max_ms = min(wait_max_ms, int(_PATIENCE_SECONDS * 1000))
        replica = ReplicaState(self._around.broker_id, self._around.broker_epoch())
        return self._session.request(replica, self._settings, wait_max_ms)

    # answers

    async def _take(self, channel: Channel, response: FetchResponse) -> None:
        self._session.answered(response)
        flushes: list[asyncio.Future[Any]] = []
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                copy = self._copies.get(key)
                if copy is not None and self._session.asks_for(key, copy) and copy.is_current:
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
        self, channel: Channel, key: Key, copy: Copy, data: PartitionData, flushes: list[asyncio.Future[Any]]
    ) -> None:
        partition = copy.partition
        log = partition.log
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._find_leaders_log(channel, copy)
            self._ask_again(key, copy)
        elif data.error_code:
            raise KafkaError(ErrorCode(data.error_code))
        elif data.diverging_epoch.end_offset >= 0:
            had = log.log_end_offset
            partition.truncate_by_epoch(EpochEntry(data.diverging_epoch.epoch, data.diverging_epoch.end_offset))
            _log.info("log truncated where the leader's differs", topic=log.topic, partition=log.partition,
                      log_end_offset=had, truncated_to=log.log_end_offset)  # fmt: skip
            self._ask_again(key, copy)
        else:
            start = log.log_start_offset
            if data.records is not None and len(data.records):
                partition.append_copies(memoryview(data.records))
                self._ask_for_more(key, copy, len(data.records))
                if log.log_end_offset - log.flushed_offset >= log.config.flush_messages:
                    flushes.append(self._around.flush(log))
            partition.follow_leader(data.high_watermark, data.log_start_offset)
            if log.log_start_offset != start:
                self._ask_again(key, copy)
                # The next fetch tells the leader that this is gone, so it must not come back with a restart.
                flushes.append(asyncio.ensure_future(self._around.checkpoint(log)))
            copy.failures = 0

    def _ask_for_more(self, key: Key, copy: Copy, copied_bytes: int) -> None:
        """With the next fetch, or when the throttle lets us."""
        partition, around = copy.partition, self._around
        if partition.is_throttled and around.broker_id not in partition.isr:
            now = around.clock.monotonic()
            around.throttle.record(copied_bytes, now)
            pause = around.throttle.wait_seconds(now)
            if pause > 0:
                self._ask_later(key, pause, self._resume)
                return
        self._ask_again(key, copy)

    async def _find_leaders_log(self, channel: Channel, copy: Copy) -> None:
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

    async def _offset(self, channel: Channel, copy: Copy, which: int) -> int:
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

    def _put_off(self, key: Key, copy: Copy, code: ErrorCode, problem: str) -> None:
        """Try a partition again in a while; until then the session forgets it."""
        copy.failures += 1
        if code not in _EXPECTED:
            log = copy.partition.log
            _log.warning("partition cannot be copied", topic=log.topic, partition=log.partition,
                         leader=self.leader_id, error=code.name, problem=problem)  # fmt: skip
        if self._copies.get(key) is copy:
            self._ask_later(key, self._pause(copy.failures), self._ask_soon)
