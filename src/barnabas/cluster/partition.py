"""One partition as its broker plays it: who leads, who is in sync, and up to where it is committed.

    log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset

The leader appends; the high watermark follows the slowest member of the in-sync replicas, the leader itself included.
The leader's own share ends at the log's end, or, while a flush that must precede an acknowledgement is under way
(`flush.messages`), at what that flush has not yet covered: nobody reads or is told of a record that a power cut could
take back. With one replica the watermark moves within the append.

Pure: it starts no timer and no I/O of its own. Whoever waits for the watermark, or for data, registers a call-back.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Protocol

from barnabas.core.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.cluster.image import Partition as PartitionImage
    from barnabas.records.control import EndMarker
    from barnabas.storage.log import AppendInfo, Log
    from barnabas.storage.log_config import LogConfig
    from barnabas.storage.log_slice import LogSlice

READ_COMMITTED = 1
NO_EPOCH = -1
_ENOUGH_BYTES = 2**31  # where it is not known how much more became readable: let readers look


class DataWatcher(Protocol):
    """Somebody who waits for more to read, such as a long-polling fetch."""

    def data_arrived(self, partition: Partition, size_bytes: int) -> None:
        """More bytes than before lie below the watermark, or (with 0) the partition is no longer ours to serve."""
        ...


class OffsetWaiters:
    """Call-backs that wait for an offset to be reached, the lowest first."""

    __slots__ = ("_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[ErrorCode], None]]] = []
        self._count = 0

    def add(self, offset: int, callback: Callable[[ErrorCode], None]) -> None:
        self._count += 1
        heappush(self._heap, (offset, self._count, callback))

    def reached(self, offset: int) -> None:
        heap = self._heap
        while heap and heap[0][0] <= offset:
            heappop(heap)[2](ErrorCode.NONE)

    def fail(self, reason: ErrorCode) -> None:
        heap, self._heap = self._heap, []
        while heap:
            heappop(heap)[2](reason)


class Partition:
    """State of one replica on this broker; owned by the broker's event loop."""

    __slots__ = (
        "_committed", "_flush_target", "_flushed", "_start_flush", "_watchers", "acknowledgeable_offset", "broker_id",
        "isr", "leader", "leader_epoch", "log", "min_insync_replicas", "partition_epoch", "replicas",
    )  # fmt: skip

    def __init__(self, broker_id: int, log: Log, start_flush: Callable[[Partition], None]) -> None:
        self.broker_id = broker_id
        self.log = log
        self.leader = -1
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = -1
        self.isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        self.min_insync_replicas = 1
        self.acknowledgeable_offset = log.log_end_offset
        self._start_flush = start_flush
        self._flush_target = -1  # the end of what must be synced before it may be acknowledged; -1: nothing
        self._committed = OffsetWaiters()
        self._flushed = OffsetWaiters()
        self._watchers: dict[DataWatcher, None] = {}

    # roles

    def update(self, registration: PartitionImage) -> None:
        """Follow what the metadata say; a new leader epoch begins with the log's present end."""
        was_leader = self.is_leader
        self.partition_epoch = registration.partition_epoch
        self.replicas = registration.replicas
        self.isr = registration.isr
        self.min_insync_replicas = min(self.log.config.min_insync_replicas, len(self.replicas))
        if registration.leader_epoch != self.leader_epoch:
            self.leader = registration.leader
            self.leader_epoch = registration.leader_epoch
            if self.is_leader:
                self.log.leader_epochs.assign(self.leader_epoch, self.log.log_end_offset)
                if self._flush_target < 0:
                    self.acknowledgeable_offset = self.log.log_end_offset
        if self.is_leader:
            self._advance_high_watermark()
        elif was_leader:
            self.resign(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def reconfigure(self, config: LogConfig) -> None:
        """Take over a topic's settings; the watermark may move when fewer replicas are asked for."""
        self.log.update_config(config)
        self.min_insync_replicas = min(config.min_insync_replicas, len(self.replicas))
        if self.is_leader:
            self._advance_high_watermark()

    @property
    def is_leader(self) -> bool:
        return self.leader == self.broker_id

    def resign(self, reason: ErrorCode) -> None:
        """Give up what was pending: waiters learn why, readers look again and find the same error."""
        self._committed.fail(reason)
        self._flushed.fail(reason)
        for watcher in list(self._watchers):
            watcher.data_arrived(self, 0)

    def check_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Refuse what is not for this broker, or comes from an older or newer view of the cluster (KIP-320)."""
        if current_leader_epoch not in (NO_EPOCH, self.leader_epoch):
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if self.leader != self.broker_id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # writing

    def append(self, records: memoryview, now_ms: int, required_acks: int) -> AppendInfo:
        """Append as the leader; when to acknowledge is the caller's question to `is_acknowledged`."""
        if self.leader != self.broker_id or (required_acks == -1 and len(self.isr) < self.min_insync_replicas):
            raise self._refusal()
        info = self.log.append_as_leader(records, self.leader_epoch, now_ms)
        if not info.duplicate:
            self._appended(info.size_bytes)
        return info

    def append_from_coordinator(self, records: memoryview, now_ms: int) -> AppendInfo:
        """Append a batch of this broker's own coordinator, which counts once it is committed."""
        self._check_own_append()
        info = self.log.append_from_coordinator(records, self.leader_epoch, now_ms)
        self._appended(info.size_bytes)
        return info

    def append_end_marker(
        self, marker: EndMarker, producer_id: int, producer_epoch: int, transaction_version: int, now_ms: int
    ) -> AppendInfo:
        """End a producer's transaction here, as its coordinator decided."""
        self._check_own_append()
        info = self.log.append_end_marker(
            marker, producer_id, producer_epoch, self.leader_epoch, now_ms, transaction_version=transaction_version
        )
        self._appended(info.size_bytes)
        return info

    def _check_own_append(self) -> None:
        """What a coordinator appends counts only once all in-sync replicas have it."""
        if self.leader != self.broker_id or len(self.isr) < self.min_insync_replicas:
            raise self._refusal()

    def _refusal(self) -> KafkaError:
        if self.leader != self.broker_id:
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{self.log.topic}-{self.log.partition} has {len(self.isr)} in-sync replicas; "
            f"min.insync.replicas asks for {self.min_insync_replicas}",
        )

    def _appended(self, size_bytes: int) -> None:
        log = self.log
        end = log.log_end_offset
        if end - log.flushed_offset >= log.config.flush_messages:  # a flush must precede the acknowledgement
            self._flush_target = end
            self._start_flush(self)
        elif self._flush_target < 0:
            self.acknowledgeable_offset = end
            self._advance_high_watermark(size_bytes)

    def flushed(self, offset: int) -> None:
        """Everything below `offset` would survive a power cut."""
        if offset >= min(self._flush_target, self.log.log_end_offset):
            self._flush_target = -1
            offset = self.log.log_end_offset
        self.acknowledgeable_offset = max(self.acknowledgeable_offset, offset)
        self._flushed.reached(self.acknowledgeable_offset)
        if self.is_leader:
            self._advance_high_watermark()

    def _advance_high_watermark(self, size_bytes: int = _ENOUGH_BYTES) -> None:
        log = self.log
        offset = self.acknowledgeable_offset
        if offset <= log.high_watermark or len(self.isr) < self.min_insync_replicas:
            return
        log.set_high_watermark(offset)
        self._committed.reached(offset)
        if self._watchers:
            for watcher in list(self._watchers):
                watcher.data_arrived(self, size_bytes)

    def is_acknowledged(self, info: AppendInfo, required_acks: int) -> bool:
        reached = self.log.high_watermark if required_acks == -1 else self.acknowledgeable_offset
        return reached > info.last_offset

    def when_acknowledged(self, info: AppendInfo, required_acks: int, callback: Callable[[ErrorCode], None]) -> None:
        """Call back once the append counts for `required_acks`, or with the error that makes waiting vain."""
        waiters = self._committed if required_acks == -1 else self._flushed
        waiters.add(info.last_offset + 1, callback)

    def when_committed(self, offset: int, callback: Callable[[ErrorCode], None]) -> None:
        """Call back once the watermark has reached an offset that it has yet to reach."""
        self._committed.add(offset, callback)

    # reading

    def read(
        self, offset: int, max_bytes: int, isolation_level: int, current_leader_epoch: int, min_one_batch: bool
    ) -> LogSlice:
        """What a consumer may see from `offset` on: up to the watermark, or the last stable offset."""
        self.check_leader(current_leader_epoch)
        log = self.log
        end = log.last_stable_offset if isolation_level == READ_COMMITTED else log.high_watermark
        return log.read(offset, max_bytes, end, min_one_batch)

    def watch(self, watcher: DataWatcher) -> None:
        self._watchers[watcher] = None

    def unwatch(self, watcher: DataWatcher) -> None:
        self._watchers.pop(watcher, None)
