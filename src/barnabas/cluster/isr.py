"""The in-sync replicas of a partition as its leader keeps them: who has what, who lags, and what is being changed.

A follower's Fetch tells its log's end. It is *caught up* at the time of the latest fetch that asked for all there was
when that fetch, or the one before it, came; a follower that was not caught up for too long leaves the set, and one that
has reached the watermark and the start of the leader's epoch comes back.

The controller decides about changes, one at a time. Until its answer is known nobody can tell which set counts, so the
watermark waits for the *maximal* one: the committed members and proposed additions; proposed removals still count. A
proposal is taken back only if it was certainly not carried out. If that is not certain (the answer was lost, or speaks
of an epoch that is not ours), it stands until the metadata say how it ended.

Pure: time is an argument, in milliseconds of a clock that never goes back.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.core.errors import ErrorCode

UNKNOWN = -1
RETRY_MS = 200
"""The pause after a proposal that failed, or every fetch would bring it up again."""
_CERTAINLY_NOT_DONE = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
_METADATA_WILL_TELL = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.NEW_LEADER_ELECTED,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)

Members = tuple[tuple[int, int], ...]
"""Broker ids with their broker epochs, where -1 is one that is not known."""


class Lag(NamedTuple):
    """How far behind a member may be. `messages` 0: as far as it likes, as long as it catches up in time."""

    time_ms: int = 10_000
    messages: int = 0


DEFAULT_LAG = Lag()


class FollowerState:
    """What a leader knows of one follower."""

    __slots__ = ("_fetched_ms", "_leader_end", "broker_epoch", "caught_up_ms", "log_end_offset", "log_start_offset")

    def __init__(self, caught_up_ms: int) -> None:
        self.broker_epoch = UNKNOWN
        self.log_end_offset = UNKNOWN
        self.log_start_offset = UNKNOWN
        self.caught_up_ms = caught_up_ms
        self._leader_end = 0  # at its latest fetch
        self._fetched_ms = caught_up_ms

    def fetched(self, broker_epoch: int, offset: int, log_start_offset: int, leader_end: int, now_ms: int) -> None:
        if offset >= leader_end:
            self.caught_up_ms = now_ms
        elif self.log_end_offset >= 0 and offset >= self._leader_end:
            self.caught_up_ms = max(self.caught_up_ms, self._fetched_ms)
        self.broker_epoch = broker_epoch
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self._leader_end = leader_end
        self._fetched_ms = now_ms

    def asks_again(self, offset: int) -> bool:
        """Whether it had the same offset before, when the leader had more."""
        return self.log_end_offset == offset < self._leader_end

    def was_caught_up(self, at_ms: int) -> None:
        """It fetched at this time, and had everything until now."""
        self.caught_up_ms = max(self.caught_up_ms, at_ms)
        self._fetched_ms = max(self._fetched_ms, at_ms)

    def lags(self, leader_end: int, now_ms: int, limit: Lag) -> bool:
        if self.log_end_offset == leader_end:
            return False
        if limit.messages and leader_end - self.log_end_offset > limit.messages:
            return True
        return now_ms - self.caught_up_ms > limit.time_ms


class Proposal:
    """A change that the controller was asked for."""

    __slots__ = ("awaits_metadata", "isr", "maximal", "retry_ms")

    def __init__(self, isr: tuple[int, ...], committed: tuple[int, ...]) -> None:
        self.isr = isr
        self.maximal = (*committed, *(member for member in isr if member not in committed))
        self.awaits_metadata = False
        self.retry_ms = -1
        """When to ask once more; -1 while the answer is awaited."""


class InSync:
    """The set of one leader in one leader epoch, with two or more replicas."""

    __slots__ = ("_leader", "_pause_until_ms", "committed", "epoch_start", "followers", "limit", "proposal")

    def __init__(
        self, leader: int, replicas: tuple[int, ...], isr: tuple[int, ...], epoch_start: int, now_ms: int, limit: Lag
    ) -> None:
        self._leader = leader
        self._pause_until_ms = now_ms
        self.committed = isr
        self.epoch_start = epoch_start
        self.limit = limit
        self.proposal: Proposal | None = None
        self.followers: dict[int, FollowerState] = {}
        self._set_replicas(replicas, now_ms)

    def _set_replicas(self, replicas: tuple[int, ...], now_ms: int) -> None:
        known = self.followers
        self.followers = {}
        for member in replicas:
            if member != self._leader:
                state = known.get(member)
                if state is None:  # a member of the set gets the time to make itself known
                    state = FollowerState(now_ms if member in self.committed else now_ms - self.limit.time_ms - 1)
                self.followers[member] = state

    def decided(self, replicas: tuple[int, ...], isr: tuple[int, ...], now_ms: int) -> None:
        """The metadata, or the controller's answer, have a newer state; no earlier proposal can come true after it."""
        self.committed = isr
        self.proposal = None
        self._pause_until_ms = now_ms
        self._set_replicas(replicas, now_ms)

    @property
    def maximal(self) -> tuple[int, ...]:
        return self.committed if self.proposal is None else self.proposal.maximal

    def least_end(self, leader_end: int) -> int:
        """The offset below which every member that may count has everything; below zero while one is unknown."""
        least = leader_end
        for member in self.maximal:
            if member != self._leader:
                state = self.followers.get(member)
                if state is None:
                    return UNKNOWN
                if state.log_end_offset < least:
                    least = state.log_end_offset
        return least

    def least_start(self, leader_start: int) -> int:
        """The low watermark: below it no member that may count has anything."""
        least = leader_start
        for member in self.maximal:
            if member != self._leader and member in self.followers:
                least = min(least, self.followers[member].log_start_offset)
        return least

    def members(self) -> Members:
        """The proposed set as the controller wants to see it."""
        assert self.proposal is not None
        epochs = {member: state.broker_epoch for member, state in self.followers.items()}
        return tuple((member, epochs.get(member, UNKNOWN)) for member in self.proposal.isr)

    # proposals; each tells whether the controller is to be asked now

    def propose_to_add(self, member: int, high_watermark: int, leader_end: int, now_ms: int) -> bool:
        """After a fetch of `member`, which may be in sync again."""
        if self.proposal is not None:
            return self._ask_again(now_ms)
        if member in self.committed or now_ms < self._pause_until_ms:
            return False
        state = self.followers[member]
        limit = self.limit.messages
        if state.log_end_offset < max(high_watermark, self.epoch_start) or (
            limit and leader_end - state.log_end_offset > limit
        ):
            return False
        self.proposal = Proposal((*self.committed, member), self.committed)
        return True

    def propose_to_remove(self, leader_end: int, now_ms: int) -> bool:
        """From time to time: drop the members that lag."""
        if self.proposal is not None:
            return self._ask_again(now_ms)
        if now_ms < self._pause_until_ms:
            return False
        staying = tuple(member for member in self.committed if not self._lags(member, leader_end, now_ms))
        if staying == self.committed:
            return False
        self.proposal = Proposal(staying, self.committed)
        return True

    def _lags(self, member: int, leader_end: int, now_ms: int) -> bool:
        state = self.followers.get(member)
        return state is not None and state.lags(leader_end, now_ms, self.limit)

    def _ask_again(self, now_ms: int) -> bool:
        proposal = self.proposal
        if proposal is None or proposal.awaits_metadata or not 0 <= proposal.retry_ms <= now_ms:
            return False
        proposal.retry_ms = -1
        return True

    def refused(self, proposal: Proposal, reason: ErrorCode, now_ms: int) -> None:
        """A proposal was not carried out, or nobody knows."""
        if proposal is not self.proposal:
            return
        if reason in _CERTAINLY_NOT_DONE:
            self.proposal = None
            self._pause_until_ms = now_ms + RETRY_MS
        elif reason in _METADATA_WILL_TELL:
            proposal.awaits_metadata = True
        else:
            proposal.retry_ms = now_ms + RETRY_MS
