"""A member of a group of the classic protocol: all join, one of them decides who reads what, all get their share.

    JOIN    the member wants to join, or to join again: it first gives up what it must not keep, then sends JoinGroup
    SYNC    the group has a generation: its leader sends the shares, everybody gets its own
    STABLE  heartbeats, until one tells of a rebalance

Eager members give up everything before they join. Cooperative ones (KIP-429) keep what they have, learn what to give
up, and join again once they have done so. Of a member without a generation the group knows nothing: what it had is
lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum, auto
from math import inf
from typing import Any

from barnabas.client.group.assignors import ASSIGNORS
from barnabas.client.group.leadership import Leadership
from barnabas.client.group.machine import MISSING_TOPIC_SECONDS, NO_RACKS, Machine
from barnabas.client.group.options import GroupOptions
from barnabas.client.group.steps import Ask, LookUp, Rest, Step
from barnabas.client.group.values import Change, Subscription
from barnabas.client.metadata import TopicInfo, TopicPartition, by_topic
from barnabas.coordinator.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolSubscription,
    decode_assignment,
    encode_subscription,
)
from barnabas.coordinator.consumer_protocol import TopicPartition as TopicPartitions
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse

_SUBSCRIPTION_VERSION = 3
_JOIN_GRACE_MS = 5_000
"""The broker answers JoinGroup when the rebalance is over; so much longer the answer may be on its way."""

_LEFT_BEHIND = {
    ErrorCode.ILLEGAL_GENERATION: "the group went on to a new generation without the member",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group does not know the member any more: its session ended, or it was removed",
}


class _Phase(Enum):
    JOIN = auto()
    SYNC = auto()
    STABLE = auto()


class ClassicMember(Machine):
    def __init__(self, options: GroupOptions, subscription: Subscription) -> None:
        super().__init__(options, subscription, "")
        self._assignors = {name: ASSIGNORS[name]() for name in options.strategy}
        self._cooperative = all(assignor.cooperative for assignor in self._assignors.values())
        self._phase = _Phase.JOIN
        self._topics: frozenset[str] | None = None if subscription.pattern else subscription.topics
        """What a pattern matches, or None while that is not known."""
        self._protocol = ""
        self._leadership: Leadership | None = None
        self._target: frozenset[TopicPartition] = frozenset()
        self._rejoin = False
        self._beat_at = inf
        self._look_up_at = inf

    def _next(self, now: float, *, busy: bool) -> Step:
        if self.generation >= 0 and self._phase is not _Phase.SYNC and now >= self._beat_at:
            return Ask(HeartbeatRequest(*self._who()))
        return self._STEPS[self._phase](self, now, busy)

    def _join(self, now: float, busy: bool) -> Step:
        if not busy:
            self._propose(self._before_joining())
            if self.change is None:
                if self._topics is None:
                    return LookUp(None)
                self._rejoin = False
                return Ask(self._join_request(), self.options.max_poll_interval_ms + _JOIN_GRACE_MS)
        return Rest(self._beat_at if self.generation >= 0 else inf)

    def _sync(self, now: float, busy: bool) -> Step:
        leadership = self._leadership
        if leadership is not None and leadership.shares is None:
            return LookUp(None if self.subscription.pattern else leadership.topics)
        shares = [] if leadership is None else leadership.encoded_shares()
        return Ask(SyncGroupRequest(*self._who(), PROTOCOL_TYPE, self._protocol, shares))

    def _stable(self, now: float, busy: bool) -> Step:
        if now >= self._look_up_at:
            self._look_up_at = now + self.options.metadata_max_age_ms / 1000
            return LookUp(None if self.subscription.pattern or self._leadership is None else self._leadership.topics)
        if not busy:
            self._propose(self._move(self._target))
            if self.change is None and self._rejoin:
                self._phase = _Phase.JOIN
                return self._join(now, busy)
        return Rest(min(self._beat_at, self._look_up_at))

    _STEPS: Mapping[_Phase, Callable[[ClassicMember, float, bool], Step]] = {
        _Phase.JOIN: _join,
        _Phase.SYNC: _sync,
        _Phase.STABLE: _stable,
    }

    def _who(self) -> tuple[str, int, str, str | None]:
        return self.options.group_id, self.generation, self.member_id, self.options.group_instance_id

    def _before_joining(self) -> Change | None:
        """What must not be kept while the group decides anew."""
        if self.generation < 0:
            return self._loss()
        kept = {each for each in self.owned if self._topics is None or each.topic in self._topics}
        return self._move(frozenset(kept) if self._cooperative else frozenset())

    def _join_request(self) -> JoinGroupRequest:
        return JoinGroupRequest(
            self.options.group_id,
            self.options.session_ms,
            self.options.max_poll_interval_ms,
            self.member_id,
            self.options.group_instance_id,
            PROTOCOL_TYPE,
            [
                JoinGroupRequestProtocol(each.name, self._subscription(each.user_data()))
                for each in self._assignors.values()
            ],
        )

    def _subscription(self, user_data: bytes | None) -> bytes:
        owned = [TopicPartitions(topic, numbers) for topic, numbers in by_topic(sorted(self.owned)).items()]
        told = ConsumerProtocolSubscription(
            sorted(self._topics or ()), user_data, owned, self.generation, self.options.client_rack
        )
        return encode_subscription(told, _SUBSCRIPTION_VERSION)

    def done(self, change: Change) -> None:
        super().done(change)
        if change.revoked and self._phase is _Phase.STABLE and self._cooperative:
            self._rejoin = True

    def farewell(self) -> LeaveGroupRequest | None:
        """Static members do not leave: their partitions wait for them until their session ends."""
        if not self.member_id or self.options.group_instance_id is not None:
            return None
        return LeaveGroupRequest(self.options.group_id, self.member_id, [MemberIdentity(self.member_id)])

    def answered(self, message: Any, response: Any, now: float) -> None:
        self._ANSWERS[type(response)](self, response, now)

    def _joined(self, response: JoinGroupResponse, now: float) -> None:
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif response.error_code != ErrorCode.NONE:
            self._refused(response.error_code)
        elif response.protocol_name not in self._assignors:
            self._fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        else:
            self.member_id, self.generation = response.member_id, response.generation_id
            self._protocol = response.protocol_name
            self._phase = _Phase.SYNC
            self._leadership = None
            if response.leader == self.member_id:
                self._leadership = Leadership(response)

    def _synced(self, response: SyncGroupResponse, now: float) -> None:
        if response.error_code != ErrorCode.NONE:
            self._refused(response.error_code)
            return
        assigned = decode_assignment(response.assignment).assigned_partitions if response.assignment else []
        self._target = frozenset(TopicPartition(each.topic, number) for each in assigned for number in each.partitions)
        self._assignors[self._protocol].assigned(self._target, self.generation)
        self._phase = _Phase.STABLE
        self._beat_at = now + self.options.heartbeat_ms / 1000
        self._look_up_at = self._next_look_up(now)

    def _beaten(self, response: HeartbeatResponse, now: float) -> None:
        self._beat_at = now + self.options.heartbeat_ms / 1000
        if response.error_code != ErrorCode.NONE:
            self._refused(response.error_code)

    def _left(self, response: LeaveGroupResponse, now: float) -> None:
        """Nobody cares how the broker took it."""

    _ANSWERS: Mapping[type, Callable[[ClassicMember, Any, float], None]] = {
        JoinGroupResponse: _joined,
        SyncGroupResponse: _synced,
        HeartbeatResponse: _beaten,
        LeaveGroupResponse: _left,
    }

    def _refused(self, code: int) -> None:
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._phase = _Phase.JOIN
        elif code in _LEFT_BEHIND:
            member_id = self.member_id if code == ErrorCode.ILLEGAL_GENERATION else ""
            self._forget_membership(_LEFT_BEHIND[ErrorCode(code)])
            self.member_id = member_id
        else:
            self._fail(code)

    def failed(self, message: Any) -> None:
        if self._phase is _Phase.SYNC:
            self._phase = _Phase.JOIN

    def _forget_membership(self, reason: str) -> None:
        self.outside = reason
        self.member_id, self.generation = "", -1
        self._phase = _Phase.JOIN
        self._leadership = None

    def looked_up(self, topics: Mapping[str, TopicInfo], now: float, racks: Mapping[int, str] = NO_RACKS) -> None:
        if self.subscription.pattern is not None:
            wanted = re.compile(self.subscription.pattern)
            matching = frozenset(
                each.name for each in topics.values() if not each.is_internal and wanted.fullmatch(each.name)
            )
            self._rejoin |= self._topics is not None and matching != self._topics
            self._topics = matching
        if self._leadership is not None:
            if self._phase is _Phase.SYNC:
                self._leadership.assign(self._assignors[self._protocol], topics, racks)
            else:
                self._rejoin |= self._leadership.is_outdated(topics)
        self._look_up_at = self._next_look_up(now)

    def _next_look_up(self, now: float) -> float:
        """Only a leader and who has a pattern care; a topic that is missing is missed soon."""
        if self._leadership is None and self.subscription.pattern is None:
            return inf
        complete = self._leadership is None or self._leadership.has_all_topics()
        return now + (self.options.metadata_max_age_ms / 1000 if complete else MISSING_TOPIC_SECONDS)

    def subscribe(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self._topics = None if subscription.pattern else subscription.topics
        self._rejoin = True

    def suspect(self) -> None:
        self._beat_at = -inf
