"""A member of a group of the consumer protocol (KIP-848): the broker decides who reads what, heartbeats carry it all.

A heartbeat tells what has changed since the one before, and all of it when the member joins or an answer got lost. The
answer may hold a target: the partitions that the member shall have. It gives up what is not in it, takes what is new,
and tells the broker by the next heartbeat; only then the broker hands to others what was given up. A member that the
broker has fenced has lost what it had, and joins again.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from barnabas.client.group.machine import MISSING_TOPIC_SECONDS, NO_RACKS, Machine
from barnabas.client.group.options import GroupOptions
from barnabas.client.group.steps import Ask, LookUp, Rest, Step
from barnabas.client.group.values import Subscription
from barnabas.client.metadata import TopicInfo, TopicPartition
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""A static member says that it will be back: its partitions wait for it until its session ends."""

_FENCED = {
    ErrorCode.FENCED_MEMBER_EPOCH: "the group fenced the member, most likely after heartbeats that did not arrive",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group does not know the member any more: its session ended, or it was removed",
}


class ConsumerMember(Machine):
    def __init__(self, options: GroupOptions, subscription: Subscription, member_id: str) -> None:
        super().__init__(options, subscription, member_id)
        self.joined = False
        """Whether the group has ever taken this member in."""
        self._epoch = JOIN_EPOCH
        self._may_be_in = False
        """Whether the group may know the member: it has asked to join, answered or not."""
        self._target: dict[bytes, list[int]] | None = None
        self._names: dict[bytes, str] = {}
        self._beat_at = -inf
        self._look_up_at = -inf
        self._told: dict[bytes, list[int]] | None = None
        """What the broker was told that the member owns; None once everything has to be told."""
        self._subscription_told = False

    def _next(self, now: float, *, busy: bool) -> Step:
        if self.generation < 0 and (self.owned or busy):
            if not busy:
                self._propose(self._loss())
            return Rest()  # to join again is for members that own nothing
        if now >= self._beat_at or (self.generation >= 0 and self._news()):
            return Ask(self._heartbeat())
        if self._unnamed() and now >= self._look_up_at:
            self._look_up_at = now + MISSING_TOPIC_SECONDS
            return LookUp(None if self.subscription.pattern else self.subscription.topics)
        if self._target is not None and not busy:
            self._propose(self._move(self._named_target()))
        return Rest(min(self._beat_at, self._look_up_at if self._unnamed() else inf))

    def farewell(self) -> ConsumerGroupHeartbeatRequest | None:
        if not self._may_be_in or not self.member_id:
            return None
        epoch = LEAVE_EPOCH if self.options.group_instance_id is None else STATIC_LEAVE_EPOCH
        return ConsumerGroupHeartbeatRequest(
            self.options.group_id, self.member_id, epoch, self.options.group_instance_id
        )

    def answered(self, message: Any, response: ConsumerGroupHeartbeatResponse, now: float) -> None:
        if message.member_epoch < 0:
            return  # it has left; nobody cares how the broker took it
        code = response.error_code
        if code in _FENCED:
            self._forget_membership(_FENCED[ErrorCode(code)])
        elif code != ErrorCode.NONE:
            self._fail(code, response.error_message)
        else:
            self._accepted(response, now)

    def _accepted(self, response: ConsumerGroupHeartbeatResponse, now: float) -> None:
        self.joined = True
        self.member_id = response.member_id or self.member_id
        self._epoch = self.generation = response.member_epoch
        self._beat_at = now + response.heartbeat_interval_ms / 1000
        if response.assignment is not None:
            self._target = {each.topic_id: each.partitions for each in response.assignment.topic_partitions}
            self._look_up_at = -inf

    def failed(self, message: Any) -> None:
        self._told = None
        self._subscription_told = False
        self._beat_at = -inf

    def looked_up(self, topics: Mapping[str, TopicInfo], now: float, racks: Mapping[int, str] = NO_RACKS) -> None:
        self._names.update({topic.topic_id: topic.name for topic in topics.values()})

    def subscribe(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self._subscription_told = False

    def suspect(self) -> None:
        self._beat_at = -inf

    def _forget_membership(self, reason: str) -> None:
        self.outside = reason
        self.generation = -1
        self._may_be_in = False
        self._epoch = JOIN_EPOCH
        self._target = None
        self._told = None
        self._subscription_told = False
        self._beat_at = -inf

    def _news(self) -> bool:
        return not self._subscription_told or (self._told is not None and self._told != self._owned_by_id())

    def _unnamed(self) -> bool:
        return self._target is not None and any(topic_id not in self._names for topic_id in self._target)

    def _named_target(self) -> frozenset[TopicPartition]:
        """The target as far as the names of its topics are known; the rest follows once they are."""
        assert self._target is not None
        return frozenset(
            TopicPartition(self._names[topic_id], partition)
            for topic_id, partitions in self._target.items()
            if topic_id in self._names
            for partition in partitions
        )

    def _heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            self.options.group_id, self.member_id, self._epoch, self.options.group_instance_id
        )
        if self._epoch == JOIN_EPOCH or self._told is None:
            request.rack_id = self.options.client_rack
            request.rebalance_timeout_ms = self.options.max_poll_interval_ms
            request.server_assignor = self.options.group_remote_assignor
        if self._epoch == JOIN_EPOCH or not self._subscription_told:
            request.subscribed_topic_names = sorted(self.subscription.topics)
            request.subscribed_topic_regex = self.subscription.pattern or ("" if self.joined else None)
        owned = self._owned_by_id()
        if self._epoch == JOIN_EPOCH or self._told != owned:
            request.topic_partitions = [TopicPartitions(topic_id, numbers) for topic_id, numbers in owned.items()]
        self._subscription_told = True
        self._told = owned
        self._may_be_in = True
        return request

    def _owned_by_id(self) -> dict[bytes, list[int]]:
        ids = {name: topic_id for topic_id, name in self._names.items()}
        partitions: dict[bytes, list[int]] = {}
        for topic, partition in sorted(self.owned):
            partitions.setdefault(ids[topic], []).append(partition)
        return partitions
