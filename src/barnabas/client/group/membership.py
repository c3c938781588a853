"""The driver of a membership: asks the coordinator what its state machine wants to know, and passes changes on.

It runs on its host's loop until it is told to end, and then leaves the group. One request is under way at a time.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from contextlib import suppress
from math import inf

from barnabas.client.client import Client
from barnabas.client.group.classic_member import ClassicMember
from barnabas.client.group.consumer_member import ConsumerMember
from barnabas.client.group.coordinator import GroupCoordinator
from barnabas.client.group.handover import Handover
from barnabas.client.group.machine import Machine
from barnabas.client.group.options import GroupOptions
from barnabas.client.group.steps import Ask, LookUp, Rest
from barnabas.client.group.values import Subscription
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.logs import get_logger
from barnabas.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.wire.schema import schema_of

_LEAVE_SECONDS = 5.0
"""Who closes a consumer does not wait longer for a coordinator; without a word the group learns it by the session."""
_FEATURE = "group.version"
_PATTERN_VERSION = 1
_OWN_ID_VERSION = 1
"""Since then a member chooses its id itself (KIP-1082), so that a join that was repeated counts once."""
_NO_CONSUMER_PROTOCOL = frozenset(
    {ErrorCode.UNSUPPORTED_VERSION, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INCONSISTENT_GROUP_PROTOCOL}
)
"""The broker does not offer the consumer protocol, or this group, with its other members, cannot go over to it."""

_log = get_logger(__name__)


class Membership:
    """Owned by its host's loop, but for `handover`."""

    def __init__(self, client: Client, options: GroupOptions, subscription: Subscription, handover: Handover) -> None:
        self._client = client
        self._options = options
        self._coordinator = GroupCoordinator(client, options.group_id)
        self._handover = handover
        self._subscription = subscription
        self._machine: Machine | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._ending = False
        self._leave = True
        self._asking = False
        self._failures = 0

    # what the caller asks for, on this loop

    def wake(self) -> None:
        self._wake.set()

    def subscribe(self, subscription: Subscription) -> None:
        self._subscription = subscription
        if self._machine is not None:
            self._machine.subscribe(subscription)
        self.wake()

    def suspect(self) -> None:
        if self._machine is not None:
            self._machine.suspect()
        self.wake()

    def end(self, leave: bool) -> None:
        self._ending, self._leave = True, leave
        if self._task is not None:
            self._task.cancel()

    # the membership

    async def run(self) -> None:
        self._task = asyncio.current_task()
        try:
            if not self._ending:
                await self._live()
        except asyncio.CancelledError:
            if not self._ending:
                await self._client.close()
                raise
        except Exception as error:
            with suppress(RuntimeError):  # the caller's loop may be closed, and then there is nobody to tell
                self._handover.fail(error)
        self._task = None  # to end it now is to let it say farewell
        await self._say_farewell()
        await self._client.close()

    async def _live(self) -> None:
        while self._machine is None or self._machine.problem is None:
            try:
                if self._machine is None:
                    self._machine = await self._choose_protocol()
                await self._turn(self._machine)
                self._failures = 0
            except KafkaError as error:
                if not error.retriable:
                    raise
                await self._pause(error)
            if isinstance(self._machine, ConsumerMember) and self._must_be_classic(self._machine):
                self._machine = ClassicMember(self._options, self._subscription)
        raise self._machine.problem

    async def _turn(self, machine: Machine) -> None:
        handover = self._handover
        self._wake.clear()
        with handover.lock:
            for change in handover.collect_done():
                machine.done(change)
            step = machine.next(self._client.clock.monotonic(), handover.polled_at, busy=handover.busy)
            waits_for_caller = machine.silent and isinstance(step, Rest)
            if waits_for_caller:
                handover.wake_caller()  # if its loop is closed, this ends the membership
            handover.offer(machine.change)
            handover.identity, handover.owned = machine.identity, machine.owned
            handover.silent = waits_for_caller
            handover.outside = machine.outside if machine.generation < 0 else ""
        if waits_for_caller:
            # A caller that was only slow may go away later, and nothing else would notice.
            await self._rest(self._client.clock.monotonic() + self._options.max_poll_interval_ms / 1000)
        elif isinstance(step, Rest):
            await self._rest(step.until)
        elif isinstance(step, LookUp):
            await self._look_up(machine, step.topics)
        else:
            await self._ask(machine, step)

    async def _ask(self, machine: Machine, step: Ask) -> None:
        self._asking = True
        try:
            response = await self._coordinator.ask(step.message, extra_timeout_ms=step.extra_timeout_ms)
        except KafkaError:
            self._asking = False
            machine.failed(step.message)
            raise
        self._asking = False
        machine.answered(step.message, response, self._client.clock.monotonic())

    async def _look_up(self, machine: Machine, topics: frozenset[str] | None) -> None:
        metadata = self._client.metadata
        try:
            await metadata.refresh(None if topics is None else sorted(topics))
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        found = metadata.cluster.topics
        wanted = found if topics is None else {name: topic for name, topic in found.items() if name in topics}
        racks = {broker.node_id: broker.rack for broker in metadata.cluster.brokers.values() if broker.rack}
        machine.looked_up(wanted, self._client.clock.monotonic(), racks)

    async def _rest(self, until: float) -> None:
        seconds = until - self._client.clock.monotonic()
        try:
            async with asyncio.timeout(None if until == inf else max(seconds, 0)):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _pause(self, error: KafkaError) -> None:
        _log.info("group is out of reach for a moment", group=self._options.group_id, problem=str(error))
        await asyncio.sleep(self._client.backoff_seconds(self._failures))
        self._failures += 1

    async def _choose_protocol(self) -> Machine:
        options, subscription = self._options, self._subscription
        if options.group_protocol == "classic" or (options.group_protocol == "auto" and options.classic_only):
            return ClassicMember(options, subscription)
        offered = await self._coordinator.features()
        key = schema_of(ConsumerGroupHeartbeatRequest).key
        newest = next((each.max_version for each in offered.api_keys if each.api_key == key), -1)
        enabled = any(each.name == _FEATURE and each.max_version_level >= 1 for each in offered.finalized_features)
        if not enabled or newest < (_PATTERN_VERSION if subscription.pattern else 0):
            if options.group_protocol == "auto":
                return ClassicMember(options, subscription)
            lacking = "patterns in the consumer protocol" if enabled and newest >= 0 else "the consumer protocol"
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the coordinator of group {options.group_id!r} does not offer {lacking}; use group_protocol='auto'",
            )
        member_id = urlsafe_b64encode(self._client.random.randbytes(16)).decode().rstrip("=")
        return ConsumerMember(options, subscription, member_id if newest >= _OWN_ID_VERSION else "")

    def _must_be_classic(self, machine: ConsumerMember) -> bool:
        return (
            self._options.group_protocol == "auto"
            and not machine.joined
            and machine.problem is not None
            and machine.problem.code in _NO_CONSUMER_PROTOCOL
        )

    async def _say_farewell(self) -> None:
        farewell = self._machine.farewell() if self._machine is not None and self._leave else None
        if farewell is None:
            return
        if self._asking:
            await self._client.close()  # an unanswered JoinGroup would hold up what follows on its connection
        try:
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._coordinator.ask(farewell)
        except (TimeoutError, KafkaError) as error:
            _log.info("group was left without a word", group=self._options.group_id, problem=str(error))
