"""What the members of both protocols have in common: partitions, changes that the caller carries out, its silence.

A machine is pure: it is told what happened and what time it is, and says what to do next. It counts a partition as
owned once its caller has carried out the change that assigned it, and until the caller has carried out the one that
takes it away. The caller is *busy* from taking a change to having done it; only while it is not busy a change may be
replaced by another, because things went on meanwhile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from barnabas.client.group.options import GroupOptions
from barnabas.client.group.refusals import refusal
from barnabas.client.group.steps import Ask, Rest, Step
from barnabas.client.group.values import Change, GroupMetadata, Subscription
from barnabas.client.metadata import TopicInfo, TopicPartition
from barnabas.core.errors import KafkaError

TOO_SLOW = (
    "the caller did not come back to the consumer within max_poll_interval_ms={}, so that the member left its group; "
    "process fewer records at a time (max_poll_records), or raise max_poll_interval_ms"
)
NO_RACKS: Mapping[int, str] = {}
MISSING_TOPIC_SECONDS = 1.0
"""How soon a topic that does not exist, or whose name is not known yet, is asked for again."""


class Machine(ABC):
    """Owned by the loop of its driver."""

    def __init__(self, options: GroupOptions, subscription: Subscription, member_id: str) -> None:
        self.options = options
        self.subscription = subscription
        self.member_id = member_id
        self.generation = -1
        self.owned: frozenset[TopicPartition] = frozenset()
        self.change: Change | None = None
        self.problem: KafkaError | None = None
        """What ends the membership for good."""
        self.outside = "the member has not joined its group yet"
        """Why it is not in the group, while it has no generation."""
        self._silent_since: float | None = None
        """When the caller was heard of for the last time before the member left because of its silence."""

    @property
    def identity(self) -> GroupMetadata:
        return GroupMetadata(self.options.group_id, self.member_id, self.generation, self.options.group_instance_id)

    @property
    def silent(self) -> bool:
        """Whether the member has left because its caller fell silent."""
        return self._silent_since is not None

    def next(self, now: float, polled_at: float, *, busy: bool) -> Step:
        """What to do now; `polled_at` is when the caller was last heard of."""
        deadline = polled_at + self.options.max_poll_interval_ms / 1000
        if self._silent_since is None and now >= deadline:
            self._silent_since = polled_at
            farewell = self.farewell()
            self._forget_membership(TOO_SLOW.format(self.options.max_poll_interval_ms))
            if farewell is not None:
                return Ask(farewell)
        if self._silent_since is not None:
            if polled_at == self._silent_since or busy:
                if not busy:
                    self._propose(self._loss())
                return Rest()
            self._silent_since = None
        step = self._next(now, busy=busy)
        return Rest(min(step.until, deadline)) if isinstance(step, Rest) else step

    def done(self, change: Change) -> None:
        """The caller has carried out a change."""
        self.owned = self.owned.difference(change.revoked, change.lost).union(change.assigned)
        self.change = None

    @abstractmethod
    def farewell(self) -> Any | None:
        """The request that leaves the group, if there is anything to leave."""

    @abstractmethod
    def answered(self, message: Any, response: Any, now: float) -> None:
        """The coordinator answered."""

    @abstractmethod
    def failed(self, message: Any) -> None:
        """A request was not answered, or by a broker that could not serve it; it may have been carried out."""

    @abstractmethod
    def looked_up(self, topics: Mapping[str, TopicInfo], now: float, racks: Mapping[int, str] = NO_RACKS) -> None:
        """These topics there are, of those asked for; brokers may tell their racks."""

    @abstractmethod
    def subscribe(self, subscription: Subscription) -> None:
        """The caller wants to read something else from now on."""

    @abstractmethod
    def suspect(self) -> None:
        """Somebody was told that this member is not what it thinks it is: ask the coordinator at once."""

    @abstractmethod
    def _next(self, now: float, *, busy: bool) -> Step: ...

    @abstractmethod
    def _forget_membership(self, reason: str) -> None:
        """The group goes on without this member."""

    def _propose(self, change: Change | None) -> None:
        """The caller, which is not busy, shall do this; if it is what was proposed before, it is not told again."""
        if change != self.change:
            self.change = change

    def _loss(self) -> Change | None:
        return Change(lost=ordered(self.owned)) if self.owned else None

    def _move(self, target: frozenset[TopicPartition]) -> Change | None:
        """What leads from what is owned to a target."""
        if target == self.owned:
            return None
        return Change(revoked=ordered(self.owned - target), assigned=ordered(target - self.owned))

    def _fail(self, code: int, message: str | None = None) -> None:
        self.problem = refusal(code, self.options, self.subscription, message)
        self._forget_membership(str(self.problem))


def ordered(partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(partitions))
