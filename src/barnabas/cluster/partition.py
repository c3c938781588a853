"""One partition as its broker plays it: who leads, who is in sync, and up to where it is committed.

    log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset

The leader appends; the high watermark follows the slowest member of the in-sync replicas (`isr`), the leader itself
included, and stands still while they are fewer than `min.insync.replicas`. A follower takes what its leader sends, and
the leader's watermark and log start offset with it; where their logs differ, leader epochs tell what is cut off.

The leader's own share ends at the log's end, or, while a flush that must precede an acknowledgement is under way
(`flush.messages`), at what that flush has not yet covered: nobody reads or is told of a record that a power cut could
take back. With one replica the watermark moves within the append.

Pure: it starts no timer and no I/O of its own. Whoever waits for the watermark, or for data, registers a call-back.
Times are milliseconds of a clock that never goes back, but for those that are written to the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.cluster import throttle
from barnabas.cluster.isr import DEFAULT_LAG, InSync, Lag, Members, Proposal
from barnabas.cluster.waiters import DataWatcher, OffsetWaiters
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.storage.leader_epochs import UNDEFINED_EPOCH, EpochEntry

if TYPE_CHECKING:
    from barnabas.cluster.events import AlteredPartition
    from barnabas.cluster.image import Partition as PartitionImage
    from barnabas.records.control import EndMarker
    from barnabas.storage.log import AppendInfo, Log
    from barnabas.storage.log_config import LogConfig
    from barnabas.storage.log_slice import LogSlice

READ_COMMITTED = 1
NO_EPOCH = -1
_ENOUGH_BYTES = 2**31  # where it is not known how much more became readable: let readers look


AlterIsr = Callable[["Partition", Members, Proposal], None]
"""Asks the controller for another ISR, and calls `isr_altered` or `isr_refused` with its answer."""


class Partition:
    """State of one replica on this broker; owned by the broker's event loop."""

    __slots__ = (
        "_acknowledged", "_alter_isr", "_committed", "_deleted", "_flush_target", "_flushed", "_lag", "_start_flush",
        "_tail_watchers", "_watchers", "acknowledgeable_offset", "broker_id", "in_sync", "is_throttled", "isr",
        "leader", "leader_epoch", "log", "min_insync_replicas", "partition_epoch", "replicas", "throttles_followers",
    )  # fmt: skip

    def __init__(
        self,
        broker_id: int,
        log: Log,
        start_flush: Callable[[Partition], None],
        alter_isr: AlterIsr | None = None,
        lag: Lag = DEFAULT_LAG,
    ) -> None:
        """`alter_isr` asks the controller for another set of in-sync replicas; without it the set stays as it is."""
        self.broker_id = broker_id
        self.log = log
        self.leader = -1
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = -1
        self.isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        self.min_insync_replicas = 1
        self.acknowledgeable_offset = log.log_end_offset
        self.in_sync: InSync | None = None  # while this broker leads and has followers
        self._alter_isr = alter_isr
        self._lag = lag
        self._start_flush = start_flush
        self._flush_target = -1  # the end of what must be synced before it may be acknowledged; -1: nothing
        self._committed = OffsetWaiters()
        self._acknowledged = OffsetWaiters()
        self._flushed = OffsetWaiters()
        self._deleted = OffsetWaiters()
        self._watchers: dict[DataWatcher, None] = {}
        self._tail_watchers: dict[DataWatcher, None] = {}
        self.throttles_followers = False
        self.is_throttled = False
        self._set_throttles()

    # roles

    def update(self, registration: PartitionImage, now_ms: int = 0) -> None:
        """Follow what the metadata say; a new leader epoch begins with the log's present end."""
        was_leader = self.is_leader
        is_new_epoch = registration.leader_epoch != self.leader_epoch
        if not is_new_epoch and registration.partition_epoch < self.partition_epoch:
            return  # the controller's answer was here first, and is newer
        is_decided = is_new_epoch or registration.partition_epoch > self.partition_epoch
        self.partition_epoch = registration.partition_epoch
        self.replicas = registration.replicas
        self.isr = registration.isr
        self.min_insync_replicas = min(self.log.config.min_insync_replicas, len(self.replicas))
        if is_new_epoch:
            self.leader = registration.leader
            self.leader_epoch = registration.leader_epoch
            self.in_sync = None
            if self.is_leader:
                self._begin_to_lead(was_leader)
        if self.is_leader:
            if len(self.replicas) == 1:
                self.in_sync = None
            elif self.in_sync is None:
                start = self.log.leader_epochs.start_of(self.leader_epoch)
                self.in_sync = InSync(self.broker_id, self.replicas, self.isr, start, now_ms, self._lag)
            elif is_decided:
                self.in_sync.decided(self.replicas, self.isr, now_ms)
            self._isr_changed()
            self._stir_followers()
        elif was_leader:
            self.resign(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _begin_to_lead(self, was_leader: bool) -> None:
        log = self.log
        end = log.log_end_offset
        log.leader_epochs.assign(self.leader_epoch, end)
        if not was_leader and end - log.flushed_offset >= log.config.flush_messages:
            self._flush_target = end  # copied from the leader before, and not yet safe here
            self._start_flush(self)
        elif self._flush_target < 0:
            self.acknowledgeable_offset = end

    def _isr_changed(self) -> None:
        """Whoever waits for all in-sync replicas must know when these have become too few."""
        if len(self.isr) < self.min_insync_replicas:
            self._acknowledged.fail(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        self._advance_high_watermark()
        self._advance_low_watermark()

    def reconfigure(self, config: LogConfig) -> None:
        """Take over a topic's settings; the watermark may move when fewer replicas are asked for."""
        self.log.update_config(config)
        self.min_insync_replicas = min(config.min_insync_replicas, len(self.replicas))
        self._set_throttles()
        if self.is_leader:
            self._advance_high_watermark()

    def _set_throttles(self) -> None:
        config, index = self.log.config, self.log.partition
        self.throttles_followers = throttle.names(config.leader_replication_throttled_replicas, index, self.broker_id)
        self.is_throttled = throttle.names(config.follower_replication_throttled_replicas, index, self.broker_id)

    @property
    def is_leader(self) -> bool:
        return self.leader == self.broker_id

    def resign(self, reason: ErrorCode) -> None:
        """Give up what was pending: waiters learn why, readers look again and find the same error."""
        for waiters in (self._committed, self._acknowledged, self._flushed, self._deleted):
            waiters.fail(reason)
        for watcher in (*self._watchers, *self._tail_watchers):
            watcher.data_arrived(self, 0)

    def check_leader(self, current_leader_epoch: int = NO_EPOCH, *, or_follower: bool = False) -> None:
        """Refuse what is not for this broker, or comes from an older or newer view of the cluster (KIP-320)."""
        if current_leader_epoch not in (NO_EPOCH, self.leader_epoch):
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if self.leader != self.broker_id and not or_follower:
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
        if self._tail_watchers:  # followers do not wait for the watermark, which waits for them
            for watcher in list(self._tail_watchers):
                watcher.data_arrived(self, size_bytes)

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
        if self.in_sync is not None:
            offset = self.in_sync.least_end(offset)
        if offset <= log.high_watermark or len(self.isr) < self.min_insync_replicas:
            return
        log.set_high_watermark(offset)
        self._committed.reached(offset)
        self._acknowledged.reached(offset)
        if self._watchers:
            for watcher in list(self._watchers):
                watcher.data_arrived(self, size_bytes)

    def is_acknowledged(self, info: AppendInfo, required_acks: int) -> bool:
        reached = self.log.high_watermark if required_acks == -1 else self.acknowledgeable_offset
        return reached > info.last_offset

    def when_acknowledged(self, info: AppendInfo, required_acks: int, callback: Callable[[ErrorCode], None]) -> None:
        """Call back once the append counts for `required_acks`, or with the error that makes waiting vain."""
        waiters = self._acknowledged if required_acks == -1 else self._flushed
        waiters.add(info.last_offset + 1, callback)

    def when_committed(self, offset: int, callback: Callable[[ErrorCode], None]) -> None:
        """Call back once the watermark has reached an offset that it has yet to reach."""
        self._committed.add(offset, callback)

    # followers, as the leader sees them

    def follower_fetched(
        self, follower: int, broker_epoch: int, offset: int, log_start_offset: int, now_ms: int, *, may_join: bool
    ) -> bool:
        """A follower asks for what comes after its log's end; `may_join`: the controller would have it in the ISR.

        Tells whether it has asked for the same before, when there was something to give it.
        """
        in_sync = self.in_sync
        state = in_sync.followers.get(follower) if in_sync is not None else None
        if in_sync is None or state is None or broker_epoch < state.broker_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self.log
        asks_again = state.asks_again(offset)
        if state.log_end_offset == offset == log.log_end_offset and state.log_start_offset == log_start_offset:
            state.fetched(broker_epoch, offset, log_start_offset, offset, now_ms)  # the most frequent case: no news
        else:
            state.fetched(broker_epoch, offset, log_start_offset, log.log_end_offset, now_ms)
            self._advance_high_watermark()
            self._advance_low_watermark()
        if follower in self.isr and in_sync.proposal is None:
            return asks_again
        if may_join and in_sync.propose_to_add(follower, log.high_watermark, log.log_end_offset, now_ms):
            self._ask_controller()
        return asks_again

    def follower_was_caught_up(self, follower: int, at_ms: int) -> None:
        """When a follower, which had everything until now, came for more the last time."""
        state = self.in_sync.followers.get(follower) if self.in_sync is not None else None
        if state is not None:
            state.was_caught_up(at_ms)

    def is_settled(self, follower: int) -> bool:
        """Whether a follower that has everything has nothing more to tell, either."""
        in_sync = self.in_sync
        return in_sync is not None and in_sync.proposal is None and follower in self.isr

    def drop_lagging(self, now_ms: int) -> None:
        """To be called from time to time: propose an ISR without the members that lag."""
        if self.in_sync is not None and self.in_sync.propose_to_remove(self.log.log_end_offset, now_ms):
            self._ask_controller()

    def _ask_controller(self) -> None:
        in_sync = self.in_sync
        if in_sync is None or in_sync.proposal is None:
            return
        if self._alter_isr is None:
            in_sync.proposal = None
        else:
            self._alter_isr(self, in_sync.members(), in_sync.proposal)

    def isr_altered(self, proposal: Proposal, altered: AlteredPartition, now_ms: int) -> None:
        """The controller has answered with the partition as it is now."""
        in_sync = self.in_sync
        if in_sync is None or altered.leader_epoch != self.leader_epoch:
            return  # the metadata tell, or have told
        if altered.partition_epoch > self.partition_epoch:
            self.partition_epoch = altered.partition_epoch
            self.isr = tuple(altered.isr)
            in_sync.decided(self.replicas, self.isr, now_ms)
            self._isr_changed()
        elif proposal is in_sync.proposal:  # the ISR was like this already
            in_sync.decided(self.replicas, self.isr, now_ms)

    def isr_refused(self, proposal: Proposal, reason: ErrorCode, now_ms: int) -> None:
        if self.in_sync is not None:
            self.in_sync.refused(proposal, reason, now_ms)
            self._advance_high_watermark()

    # following

    def append_copies(self, records: memoryview) -> AppendInfo:
        """Append what the leader sent, batch for batch as it is there."""
        log = self.log
        first_offset = int.from_bytes(records[:8], "big")
        if first_offset < log.log_end_offset == log.log_start_offset:
            log.truncate_fully_and_start_at(first_offset)  # the leader's log begins in the middle of a batch
        return log.append_as_follower(records)

    def follow_leader(self, high_watermark: int, log_start_offset: int) -> None:
        """Take over how far the leader has committed, and where its log begins."""
        log = self.log
        high_watermark = min(high_watermark, log.log_end_offset)
        if high_watermark > log.high_watermark:
            log.set_high_watermark(high_watermark)
            for watcher in list(self._watchers):
                watcher.data_arrived(self, _ENOUGH_BYTES)
        if log_start_offset > log.log_start_offset:
            log.advance_log_start_offset(min(log_start_offset, log.high_watermark))

    def truncate_by_epoch(self, diverging: EpochEntry) -> None:
        """The leader's epoch `diverging` ends where it says; drop what this log has in its place.

        If this log does not know the epoch, it is cut to where its latest earlier one ends, and the next fetch tells.
        """
        log = self.log
        end = diverging.start_offset
        own_epoch, own_end = log.end_offset_for_epoch(diverging.epoch)
        if own_epoch == diverging.epoch:
            end = min(end, own_end)
        elif own_epoch != UNDEFINED_EPOCH:
            end = own_end
        self.truncate(end)

    def truncate(self, offset: int) -> None:
        self.log.truncate_to(offset)
        self._truncated()

    def restart_at(self, offset: int) -> None:
        """Drop everything, and go on where the leader's log begins."""
        self.log.truncate_fully_and_start_at(offset)
        self._truncated()

    def _truncated(self) -> None:
        end = self.log.log_end_offset
        self.acknowledgeable_offset = min(self.acknowledgeable_offset, end)
        self._flush_target = min(self._flush_target, end)

    # deleting

    def delete_records(self, offset: int) -> None:
        """Let the log begin at `offset`; the followers learn of it with their next fetch."""
        self.log.advance_log_start_offset(offset)
        self._stir_followers()

    @property
    def low_watermark(self) -> int:
        """Below it no in-sync replica has anything."""
        start = self.log.log_start_offset
        return start if self.in_sync is None else self.in_sync.least_start(start)

    def when_deleted(self, offset: int, callback: Callable[[ErrorCode], None]) -> None:
        """Call back once the low watermark has reached an offset that it has yet to reach."""
        self._deleted.add(offset, callback)

    def _advance_low_watermark(self) -> None:
        if self._deleted:
            self._deleted.reached(self.low_watermark)

    # reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation_level: int,
        current_leader_epoch: int,
        min_one_batch: bool,
        *,
        or_follower: bool = False,
    ) -> LogSlice:
        """What a consumer may see from `offset` on: up to the watermark, or the last stable offset.

        `or_follower`: the reader takes what a follower has, too (KIP-392). That follower may not have the offset yet,
        which the reader knows from the leader; it is not out of range for that.
        """
        log = self.log
        if self.leader != self.broker_id or current_leader_epoch not in (NO_EPOCH, self.leader_epoch):
            self.check_leader(current_leader_epoch, or_follower=or_follower)
            if offset > log.log_end_offset and self.leader != self.broker_id:
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        end = log.last_stable_offset if isolation_level == READ_COMMITTED else log.high_watermark
        return log.read(offset, max_bytes, end, min_one_batch)

    def divergence(self, offset: int, last_fetched_epoch: int) -> EpochEntry | None:
        """Where the log of who read up to `offset`, the last in that epoch, differs from this one; None: nowhere."""
        log = self.log
        if last_fetched_epoch == log.leader_epochs.latest and offset <= log.log_end_offset:
            return None
        found = log.end_offset_for_epoch(last_fetched_epoch)
        if found.epoch == UNDEFINED_EPOCH:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"leader epoch {last_fetched_epoch} is not known here")
        return found if found.epoch < last_fetched_epoch or found.start_offset < offset else None

    @property
    def is_watermark_known(self) -> bool:
        """Whether the watermark has reached what was committed before this leader's time (KIP-207)."""
        return self.in_sync is None or self.log.high_watermark >= self.in_sync.epoch_start

    def watch(self, watcher: DataWatcher) -> None:
        """Tell of what becomes readable."""
        self._watchers[watcher] = None

    def watch_tail(self, watcher: DataWatcher, *, watermark: bool) -> None:
        """Tell of what is appended, and of what else a follower must know; with `watermark`, of that at once, too."""
        self._tail_watchers[watcher] = None
        if watermark:
            self._watchers[watcher] = None

    def _stir_followers(self) -> None:
        """Have the followers' sessions look at this partition again, though nothing was appended."""
        for watcher in list(self._tail_watchers):
            watcher.data_arrived(self, 0)

    def unwatch(self, watcher: DataWatcher) -> None:
        self._watchers.pop(watcher, None)
        self._tail_watchers.pop(watcher, None)
