"""A classic group with a clock, a log and its clients' tokens, for tests to drive."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from barnabas.coordinator.classic_group import ClassicGroup, ClassicGroupConfig
from barnabas.coordinator.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from barnabas.coordinator.group import Group
from barnabas.coordinator.group_records import GroupMetadataValue
from barnabas.coordinator.outcome import CoordinatorRecord, Now, Outcome
from barnabas.coordinator.records import decode_group_record
from barnabas.coordinator.timers import TimerKey, Timers
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.messages.k12_heartbeat import HeartbeatRequest
from barnabas.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment

SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000
WALL_MS = 1_700_000_000_000
CONFIG = ClassicGroupConfig(initial_rebalance_delay_ms=DELAY_MS)


def subscription(*topics: str) -> bytes:
    return encode_subscription(ConsumerProtocolSubscription(topics=list(topics)), 3)


RANGE = {"range": subscription("orders")}


class Bench:
    """Requests return their number; `replies` has the answer once there is one."""

    def __init__(self, config: ClassicGroupConfig = CONFIG) -> None:
        self.config = config
        self.timers: Timers[TimerKey] = Timers()
        self.random = Random(7)
        self.clock_ms = 1_000
        self.group = ClassicGroup("g", config, self.timers, self.random, self.now)
        self.log: list[CoordinatorRecord] = []
        self.replies: dict[int, Any] = {}
        self.tokens = 0

    @property
    def now(self) -> Now:
        return Now(self.clock_ms, WALL_MS + self.clock_ms)

    def apply(self, outcome: Outcome) -> None:
        self.log += outcome.records
        for token, response in outcome.replies:
            assert isinstance(token, int)
            assert token not in self.replies, f"request {token} was answered twice"
            self.replies[token] = response

    @property
    def waiting(self) -> set[int]:
        return set(range(1, self.tokens + 1)) - self.replies.keys()

    def error(self, token: int) -> ErrorCode:
        return ErrorCode(self.replies[token].error_code)

    def _token(self) -> int:
        self.tokens += 1
        return self.tokens

    def send_join(
        self,
        member_id: str = "",
        instance: str | None = None,
        protocols: Mapping[str, bytes] = RANGE,
        *,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 9,
    ) -> int:
        token = self._token()
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms if version > 0 else -1,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols.items()],
        )
        self.apply(self.group.join(request, version, "client", "/127.0.0.1", token, self.now))
        return token

    def send_sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> int:
        token = self._token()
        request = SyncGroupRequest(
            group_id="g",
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=data)
                for name, data in (assignments or {}).items()
            ],
        )
        self.apply(self.group.sync(request, token, self.now))
        return token

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> ErrorCode:
        token = self._token()
        request = HeartbeatRequest(
            group_id="g", generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        self.apply(self.group.heartbeat(request, token, self.now))
        return self.error(token)

    def leave(self, *identities: tuple[str, str | None], version: int = 5) -> Any:
        token = self._token()
        request = LeaveGroupRequest(
            group_id="g",
            member_id=identities[0][0] if version < 3 else "",
            members=[MemberIdentity(member_id=m, group_instance_id=i) for m, i in identities] if version >= 3 else [],
        )
        self.apply(self.group.leave(request, version, token, self.now))
        return self.replies[token]

    def commit(
        self, member_id: str, generation: int, instance: str | None = None, *, transactional: bool = False
    ) -> ErrorCode:
        group: Group = self.group
        try:
            group.validate_offset_commit(
                member_id, instance, generation, is_transactional=transactional, api_version=9, partitions=()
            )
        except KafkaError as refusal:
            return refusal.code
        return ErrorCode.NONE

    def advance(self, milliseconds: int) -> None:
        """Let time pass, and every timer be due in its turn."""
        end_ms = self.clock_ms + milliseconds
        while (deadline_ms := self.timers.next_deadline_ms) is not None and deadline_ms <= end_ms:
            self.clock_ms = max(self.clock_ms, deadline_ms)
            for key in self.timers.take_due(self.clock_ms):
                self.apply(self.group.expire(key, self.now))
        self.clock_ms = end_ms

    # In several steps

    def member_id(self, **join: Any) -> str:
        """An id for a new dynamic member."""
        reply = self.replies[self.send_join(**join)]
        assert reply.error_code == ErrorCode.MEMBER_ID_REQUIRED
        member_id: str = reply.member_id
        return member_id

    def settle(self, *joins: int) -> list[str]:
        """From joins that were just answered to a stable group; the ids of the joiners."""
        answers = [self.replies[token] for token in joins]
        assert [answer.error_code for answer in answers] == [ErrorCode.NONE] * len(answers)
        generation = self.group.generation_id
        ids = [answer.member_id for answer in answers]
        leader = self.group.members.leader_id
        syncs = [self.send_sync(member_id, generation) for member_id in ids if member_id != leader]
        if leader is not None and leader in ids:
            assignment = {member.member_id: b"to " + member.member_id.encode() for member in self.group.members}
            syncs.append(self.send_sync(leader, generation, assignment))
        assert {self.replies[token].error_code for token in syncs} == {ErrorCode.NONE}
        return ids

    def stable(self, count: int, **join: Any) -> list[str]:
        """A new stable group of dynamic members, the leader first."""
        ids = [self.member_id(**join) for _ in range(count)]
        joins = [self.send_join(member_id, **join) for member_id in ids]
        while self.waiting:
            self.advance(DELAY_MS)
        return self.settle(*joins)

    def stable_static(self, *instances: str, **join: Any) -> list[str]:
        joins = [self.send_join(instance=instance, **join) for instance in instances]
        while self.waiting:
            self.advance(DELAY_MS)
        return self.settle(*joins)

    def recorded(self) -> GroupMetadataValue:
        """The last record."""
        _, value = decode_group_record(*self.log[-1])
        assert isinstance(value, GroupMetadataValue)
        return value

    def reload(self) -> Bench:
        """Another coordinator, which has read the log."""
        other = Bench(self.config)
        other.clock_ms = self.clock_ms
        other.log = list(self.log)
        other.group = ClassicGroup.restore("g", self.recorded(), other.config, other.timers, other.random, other.now)
        other.apply(other.group.loaded(other.now))
        return other
