"""A group of the classic protocol, in which the broker keeps the members together and one of them does the assigning.

A rebalance has two halves. In the first (PreparingRebalance) every member sends JoinGroup, and its answer waits until
all have done so or the rebalance time-out is over; then there is a new generation, with a leader and a protocol that
all support. In the second (CompletingRebalance) every member sends SyncGroup, the leader with everybody's assignment,
and the answers wait for the leader's. From then on the group is Stable until somebody joins, leaves, changes or dies.

What lasts is one record with the whole group. It is written when the leader has synced, when the group has become
empty, when a static member has come back under another id, and when the group is first heard of. A rebalance under way
is not recorded: a group that is loaded is Stable or Empty, and members who were further hear of UNKNOWN_MEMBER_ID or
ILLEGAL_GENERATION, and join again. The state changes at once, and the answers leave when the record is safe.

Nobody is forgotten: every token gets its answer, also that of a member which is removed, or whose repeated request
takes the place of the one that waits (REBALANCE_IN_PROGRESS: that client has given it up).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from uuid import UUID

from barnabas.coordinator.classic_members import ClassicMember, Protocols, protocols_of
from barnabas.coordinator.classic_state import (
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
    STABLE,
    TRANSITIONS,
    ClassicGroupBase,
    ClassicState,
)
from barnabas.coordinator.consumer_protocol import PROTOCOL_TYPE
from barnabas.coordinator.group_records import GroupMetadataValue
from barnabas.coordinator.outcome import CoordinatorRecord, Now, Outcome, Token
from barnabas.coordinator.timers import TimerKey, Timers
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from barnabas.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse

# Timers: of a member (a pending one too), no sign of life; of the group, a half of the rebalance has taken too long.
SESSION = "session"
JOIN = "join"
SYNC = "sync"

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""A new member waits in its first JoinGroup without heartbeats, and nobody notices if its client has gone. After this
time it is taken for gone; if it is there, it asks again."""
_RETRY_MS = 100  # at least, when nobody has rejoined and the clients gave no rebalance time-out to speak of


@dataclass(frozen=True, slots=True)
class ClassicGroupConfig:
    """`max_record_bytes`: the largest record, key and value, that the topic of the groups takes in a batch."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    max_record_bytes: int = 1_048_000

    def allows(self, session_timeout_ms: int) -> bool:
        """Whether a member may have this session time-out; INVALID_SESSION_TIMEOUT if not."""
        return self.min_session_timeout_ms <= session_timeout_ms <= self.max_session_timeout_ms


@dataclass(frozen=True, slots=True)
class _Join:
    """A JoinGroup and who sent it."""

    version: int
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: Protocols
    rebalance_timeout_ms: int
    session_timeout_ms: int
    token: Token


class ClassicGroup(ClassicGroupBase):
    """One group. Its timers are the shard's, under keys with its id; `expire` is told of those that are due.

    `is_recorded` tells whether the log knows the group: one that was made for a JoinGroup, and is not recorded after
    it, is not to be kept.
    """

    __slots__ = ("_config", "_initial_deadline_ms", "_joined_meanwhile", "_random", "_timers", "is_recorded")

    def __init__(
        self, group_id: str, config: ClassicGroupConfig, timers: Timers[TimerKey], random: Random, now: Now
    ) -> None:
        super().__init__(group_id, now.wall_ms)
        self._config = config
        self._timers = timers
        self._random = random
        self._initial_deadline_ms: int | None = None  # set during the first rebalance of an empty group
        self._joined_meanwhile = False
        self.is_recorded = False

    @classmethod
    def restore(
        cls,
        group_id: str,
        value: GroupMetadataValue,
        config: ClassicGroupConfig,
        timers: Timers[TimerKey],
        random: Random,
        now: Now,
    ) -> ClassicGroup:
        """The group of a record, DecodeError if there is none in it. Its timers run from `loaded` on."""
        group = cls(group_id, config, timers, random, now)
        group.fill(value)
        group.is_recorded = True
        return group

    @classmethod
    def of_members(
        cls,
        group_id: str,
        generation_id: int,
        members: Iterable[ClassicMember],
        config: ClassicGroupConfig,
        timers: Timers[TimerKey],
        random: Random,
        now: Now,
    ) -> ClassicGroup:
        """A stable group of consumers who come from the consumer protocol (KIP-848) and all support one of theirs here.
        Its timers run from `loaded` on, and `record` is what makes it last."""
        group = cls(group_id, config, timers, random, now)
        group.generation_id = generation_id
        group.protocol_type = PROTOCOL_TYPE
        for member in members:
            group.members.add(member)
        group.protocol_name = group.members.choose_protocol()
        group.state = STABLE
        group.note_subscriptions()
        group.is_recorded = True
        return group

    def loaded(self, now: Now) -> Outcome:
        """Sessions begin anew with the coordinator. Where the limit of members was lowered, they have to join again."""
        out = Outcome()
        for member in self.members:
            self._restart_session(member, now)
        if len(self.members) > self._config.max_size:
            self._prepare_rebalance(now, out)
        return out

    # JoinGroup

    def join(
        self, request: JoinGroupRequest, version: int, client_id: str, client_host: str, token: Token, now: Now
    ) -> Outcome:
        """`client_host` is what Kafka's tools show: a slash and the address."""
        out = Outcome()
        member_id = request.member_id
        if not self._config.allows(request.session_timeout_ms):
            return out.reply(token, _join_error(ErrorCode.INVALID_SESSION_TIMEOUT, member_id))
        if not self.is_recorded:
            out.records.append(self.record())
            self.is_recorded = True
        join = _Join(
            version,
            member_id,
            request.group_instance_id,
            client_id,
            client_host,
            request.protocol_type,
            protocols_of(request.protocols),
            request.rebalance_timeout_ms if version > 0 else request.session_timeout_ms,
            request.session_timeout_ms,
            token,
        )
        if self.state is DEAD:
            out.reply(token, _join_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id))
        elif not self._has_room_for(member_id):
            self._remove(member_id, out)
            out.reply(token, _join_error(ErrorCode.GROUP_MAX_SIZE_REACHED))
        elif not self._supports(join):
            out.reply(token, _join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
        elif member_id:
            self._join_again(join, now, out)
        else:
            self._join_anew(join, now, out)
        return out

    def _has_room_for(self, member_id: str) -> bool:
        """In a rebalance those count who have joined it, so that of a group that is too large the last stay out."""
        member = self.members.get(member_id)
        if self.state is PREPARING:
            return (member is not None and member.join_token is not None) or self.members.joined < self._config.max_size
        return self.state is EMPTY or member is not None or len(self.members) < self._config.max_size

    def _supports(self, join: _Join) -> bool:
        type_fits = join.protocol_type != "" if self.state is EMPTY else join.protocol_type == self.protocol_type
        return type_fits and self.members.all_support_one_of(name for name, _ in join.protocols)

    def _join_anew(self, join: _Join, now: Now, out: Outcome) -> None:
        name = join.client_id if join.group_instance_id is None else join.group_instance_id
        member_id = f"{name}-{UUID(int=self._random.getrandbits(128), version=4)}"
        predecessor = self.members.of_instance(join.group_instance_id)
        if predecessor is not None:
            self._replace_static(predecessor, member_id, join, now, out)
        elif join.group_instance_id is None and join.version >= 4:
            # KIP-394: a client that never hears of its id must not stay in the group as a ghost.
            self.members.pending.add(member_id)
            self._timers.set(self._key(SESSION, member_id), now.monotonic_ms + join.session_timeout_ms)
            out.reply(join.token, _join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(member_id, join, now, out)

    def _join_again(self, join: _Join, now: Now, out: Outcome) -> None:
        if join.member_id in self.members.pending and join.group_instance_id is None:
            self._add(join.member_id, join, now, out)
            return
        member = self.member(join.member_id, join.group_instance_id)
        if isinstance(member, ErrorCode):
            out.reply(join.token, _join_error(member, join.member_id))
        elif (
            self.state is PREPARING
            or member.protocols != join.protocols
            # The leader of a stable group may always ask for a rebalance: it alone sees, say, new partitions.
            or (self.state is STABLE and member.member_id == self.members.leader_id)
        ):
            self.members.update(member, join.protocols, join.rebalance_timeout_ms, join.session_timeout_ms)
            self._await_join(member, join.token, out)
            self._rebalance_or_complete_join(now, out)
        else:  # its answer was lost, or it wants its assignment again
            out.reply(join.token, self.join_response(member))

    def _add(self, member_id: str, join: _Join, now: Now, out: Outcome) -> None:
        if not self.members:
            self.protocol_type = join.protocol_type
        self.members.add(
            ClassicMember(
                member_id,
                join.group_instance_id,
                join.client_id,
                join.client_host,
                join.rebalance_timeout_ms,
                join.session_timeout_ms,
                join.protocols,
                is_new=True,
                join_token=join.token,
            )
        )
        self._joined_meanwhile = True
        self._timers.set(self._key(SESSION, member_id), now.monotonic_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance_or_complete_join(now, out)

    def _replace_static(self, predecessor: ClassicMember, member_id: str, join: _Join, now: Now, out: Outcome) -> None:
        """A static member is back without its id (KIP-345): it takes its own place, and its former self is fenced."""
        leader_before = self.members.leader_id
        self._answer(predecessor, ErrorCode.FENCED_INSTANCE_ID, predecessor.member_id, out)
        member = self._rename(predecessor, member_id)
        self.members.update(member, join.protocols, join.rebalance_timeout_ms, join.session_timeout_ms)
        self._restart_session(member, now)
        if self.state is not STABLE or self.members.choose_protocol() != self.protocol_name:
            self._await_join(member, join.token, out)
            # While completing too: the leader may hold the former id, and would assign to nobody.
            self._rebalance_or_complete_join(now, out)
            return
        record = self.record()
        if self._is_too_large(record):
            self.members.update(
                member, predecessor.protocols, predecessor.rebalance_timeout_ms, predecessor.session_timeout_ms
            )
            self._restart_session(self._rename(member, predecessor.member_id), now)
            out.reply(join.token, _join_error(ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        self.note_subscriptions()
        out.records.append(record)
        response = self.join_response(member)
        if join.version >= 9:  # KIP-814: a leader is told that it leads, and that there is nothing to assign
            response.skip_assignment = member.member_id == self.members.leader_id
        else:  # before, a leader that is told so would assign, and nobody would listen
            response.members = []
            response.leader = leader_before or ""
        out.reply(join.token, response)

    def _rename(self, member: ClassicMember, member_id: str) -> ClassicMember:
        self._timers.cancel(self._key(SESSION, member.member_id))
        renamed = self.members.rename(member, member_id)
        self._stop_sync_timer_if_all_synced()
        return renamed

    # The two halves of a rebalance

    def rebalance(self, now: Now) -> Outcome:
        """Have the members of a stable group join again."""
        out = Outcome()
        self._prepare_rebalance(now, out)
        return out

    def _rebalance_or_complete_join(self, now: Now, out: Outcome) -> None:
        if self.state is not PREPARING:
            self._prepare_rebalance(now, out)
        elif self._initial_deadline_ms is None and self.members.all_joined:
            self._complete_join(now, out)

    def _prepare_rebalance(self, now: Now, out: Outcome) -> None:
        if self.state is COMPLETING:
            for member in self.members:
                member.assignment = b""
            self._answer_syncs(ErrorCode.REBALANCE_IN_PROGRESS, now, out)
        self.members.unsynced.clear()
        self._timers.cancel(self._key(SYNC))
        was_empty = self.state is EMPTY
        self._enter(PREPARING, now)
        if was_empty:
            # The first members of a group mostly start together: give the others time, and more if some do come.
            self._initial_deadline_ms = now.monotonic_ms + self.members.rebalance_timeout_ms
            self._joined_meanwhile = False
            self._timers.set(self._key(JOIN), now.monotonic_ms + self._config.initial_rebalance_delay_ms)
        elif self.members.all_joined:
            self._complete_join(now, out)
        else:
            self._timers.set(self._key(JOIN), now.monotonic_ms + self.members.rebalance_timeout_ms)

    def _complete_join(self, now: Now, out: Outcome) -> None:
        """A new generation of those who have joined, and of static members, who may be away for a while."""
        self._timers.cancel(self._key(JOIN))
        self._initial_deadline_ms = None
        for member in list(self.members):
            if member.join_token is None and member.group_instance_id is None:
                self._remove(member.member_id, out)
        if self.members and not self.members.elect():
            # Static members only, and all of them away: their sessions decide.
            delay_ms = max(self.members.rebalance_timeout_ms, _RETRY_MS)
            self._timers.set(self._key(JOIN), now.monotonic_ms + delay_ms)
            return
        self.generation_id += 1
        self.protocol_name = self.members.choose_protocol() if self.members else None
        self.note_subscriptions()
        if not self.members:
            self._enter(EMPTY, now)
            out.records.append(self.record())
            return
        self._enter(COMPLETING, now)
        for member in self.members:
            token = self.members.take_join_token(member)
            if token is not None:
                out.reply(token, self.join_response(member))
            member.is_new = False
            self._restart_session(member, now)
            self.members.unsynced.add(member.member_id)
        self._timers.set(self._key(SYNC), now.monotonic_ms + self.members.rebalance_timeout_ms)

    def sync(self, request: SyncGroupRequest, token: Token, now: Now) -> Outcome:
        out = Outcome()
        member = self.member_of_generation(request.member_id, request.group_instance_id, request.generation_id)
        if isinstance(member, ErrorCode):
            return out.reply(token, SyncGroupResponse(error_code=member))
        type_fits = request.protocol_type in (None, self.protocol_type)
        if not type_fits or request.protocol_name not in (None, self.protocol_name):
            return out.reply(token, SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        if self.state is PREPARING:
            return out.reply(token, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        self.members.unsynced.discard(member.member_id)
        self._stop_sync_timer_if_all_synced()
        if self.state is STABLE:
            return out.reply(token, self.sync_response(member))
        if member.sync_token is not None:
            out.reply(member.sync_token, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_token = token
        if member.member_id == self.members.leader_id:
            self._assign(request, now, out)
        return out

    def _assign(self, request: SyncGroupRequest, now: Now, out: Outcome) -> None:
        given = {assignment.member_id: assignment.assignment for assignment in request.assignments}
        record = None
        if sum(len(given.get(member.member_id, b"")) for member in self.members) <= self._config.max_record_bytes:
            for member in self.members:  # what is too much in any case is not copied first
                member.assignment = bytes(given.get(member.member_id, b""))
            record = self.record()
        if record is None or self._is_too_large(record):
            self._answer_syncs(ErrorCode.UNKNOWN_SERVER_ERROR, now, out)
            self._prepare_rebalance(now, out)
            return
        self._enter(STABLE, now)
        out.records.append(record)
        self._answer_syncs(ErrorCode.NONE, now, out)

    # Signs of life, and farewells

    def heartbeat(self, request: HeartbeatRequest, token: Token, now: Now) -> Outcome:
        error = ErrorCode.NONE
        member = self.member_of_generation(request.member_id, request.group_instance_id, request.generation_id)
        if isinstance(member, ErrorCode):
            error = member
        else:
            self._restart_session(member, now)
            if self.state is PREPARING:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        return Outcome().reply(token, HeartbeatResponse(error_code=error))

    def committed(self, member_id: str, now: Now) -> None:
        """A commit that was accepted, and was not part of a transaction, is a sign of life too."""
        member = self.members.get(member_id)
        if member is not None and self.state in (STABLE, PREPARING):
            self._restart_session(member, now)

    def leave(self, request: LeaveGroupRequest, version: int, token: Token, now: Now) -> Outcome:
        out = Outcome()
        if self.state is DEAD:
            return out.reply(token, LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        leaving = request.members if version >= 3 else [MemberIdentity(member_id=request.member_id)]
        results = [
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=self._leave(identity, out),
            )
            for identity in leaving
        ]
        if version >= 3:
            out.reply(token, LeaveGroupResponse(members=results))
        else:
            out.reply(token, LeaveGroupResponse(error_code=results[0].error_code))
        if self.state is not EMPTY and any(result.error_code == ErrorCode.NONE for result in results):
            self._rebalance_or_complete_join(now, out)
        return out

    def _leave(self, identity: MemberIdentity, out: Outcome) -> ErrorCode:
        member: ClassicMember | ErrorCode
        if identity.member_id in self.members.pending:
            self._remove(identity.member_id, out)
            return ErrorCode.NONE
        elif identity.member_id:
            member = self.member(identity.member_id, identity.group_instance_id)
        else:  # an administrator removes a static member, and knows it by its instance
            member = self.members.of_instance(identity.group_instance_id) or ErrorCode.UNKNOWN_MEMBER_ID
        if isinstance(member, ErrorCode):
            return member
        self._remove(member.member_id, out)
        return ErrorCode.NONE

    def delete(self, now: Now) -> Outcome:
        """The group ends. Members that it still has are to join what comes in its place."""
        out = Outcome(self.tombstones())
        for member in self.members:
            self._answer(member, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id, out)
            self._timers.cancel(self._key(SESSION, member.member_id))
        for member_id in self.members.pending:
            self._timers.cancel(self._key(SESSION, member_id))
        self._timers.cancel(self._key(JOIN))
        self._timers.cancel(self._key(SYNC))
        self._enter(DEAD, now)
        return out

    # Time-outs

    def expire(self, key: TimerKey, now: Now) -> Outcome:
        """One of the group's timers is due. What came of others that were due with it counts: it may be set anew."""
        out = Outcome()
        if key not in self._timers and self.state is not DEAD:
            if key.kind == SESSION:
                self._expire_session(key.member_id, now, out)
            elif key.kind == JOIN:
                self._expire_join(now, out)
            else:
                self._expire_sync(now, out)
        return out

    def _expire_session(self, member_id: str, now: Now, out: Outcome) -> None:
        member = self.members.get(member_id)
        if member is None and member_id not in self.members.pending:
            return
        if member is not None and member.is_waiting and not member.is_new:
            return  # it waits for the others, and its session begins anew with the answer
        self._remove(member_id, out)
        if self.state is PREPARING:
            if self.members.all_joined:
                self._complete_join(now, out)
        elif member is not None:
            self._prepare_rebalance(now, out)

    def _expire_join(self, now: Now, out: Outcome) -> None:
        if self.state is not PREPARING:
            return
        if self._initial_deadline_ms is not None and self._joined_meanwhile:
            left_ms = self._initial_deadline_ms - now.monotonic_ms
            if left_ms > 0:
                self._joined_meanwhile = False
                delay_ms = min(self._config.initial_rebalance_delay_ms, left_ms)
                self._timers.set(self._key(JOIN), now.monotonic_ms + delay_ms)
                return
        self._complete_join(now, out)

    def _expire_sync(self, now: Now, out: Outcome) -> None:
        if self.members.unsynced:
            for member_id in sorted(self.members.unsynced):
                self._remove(member_id, out)
            self._prepare_rebalance(now, out)

    # Helpers

    def _key(self, kind: str, member_id: str = "") -> TimerKey:
        return TimerKey(self.group_id, kind, member_id)

    def _enter(self, state: ClassicState, now: Now) -> None:
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"group {self.group_id!r} is {self.state.value}, and cannot become {state.value}")
        self.state = state
        self.state_since_ms = now.wall_ms

    def _restart_session(self, member: ClassicMember, now: Now) -> None:
        self._timers.set(self._key(SESSION, member.member_id), now.monotonic_ms + member.session_timeout_ms)

    def _stop_sync_timer_if_all_synced(self) -> None:
        if not self.members.unsynced:
            self._timers.cancel(self._key(SYNC))

    def _await_join(self, member: ClassicMember, token: Token, out: Outcome) -> None:
        if member.join_token is not None:
            out.reply(member.join_token, _join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        self.members.await_join(member, token)

    def _remove(self, member_id: str, out: Outcome) -> None:
        """A member, or a pending one, is out; if it waits it is told, and will come anew if it is alive."""
        member = self.members.get(member_id)
        if member is not None:
            self._answer(member, ErrorCode.UNKNOWN_MEMBER_ID, "", out)
        self.members.remove(member_id)
        self._timers.cancel(self._key(SESSION, member_id))

    def _answer(self, member: ClassicMember, error: ErrorCode, told_id: str, out: Outcome) -> None:
        token = self.members.take_join_token(member)
        if token is not None:
            out.reply(token, _join_error(error, told_id))
        if member.sync_token is not None:
            out.reply(member.sync_token, SyncGroupResponse(error_code=error))
            member.sync_token = None

    def _answer_syncs(self, error: ErrorCode, now: Now, out: Outcome) -> None:
        for member in self.members:
            if member.sync_token is not None:
                failed = error is not ErrorCode.NONE
                response = SyncGroupResponse(error_code=error) if failed else self.sync_response(member)
                out.reply(member.sync_token, response)
                member.sync_token = None
                self._restart_session(member, now)

    def _is_too_large(self, record: CoordinatorRecord) -> bool:
        return len(record.key) + len(record.value or b"") > self._config.max_record_bytes


def _join_error(error: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, member_id=member_id)
