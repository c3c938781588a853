"""What holds in a classic group at every moment, whatever its clients send and in whatever order.

Clients come and go, static and dynamic ones, repeat themselves, speak for ids that are no longer theirs and of
generations that are over; time passes, and the coordinator is lost and loaded from the log. At every step one
generation is current and has one assignment, nobody commits who is fenced or out, and the log has what counts. In the
end, clients that keep to the protocol get a stable group without the others, and without clients it becomes empty.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.coordinator.classic_group import (
    JOIN,
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    SESSION,
    SYNC,
    ClassicGroup,
    ClassicGroupConfig,
)
from barnabas.coordinator.classic_state import ClassicState
from barnabas.coordinator.timers import TimerKey
from barnabas.core.errors import ErrorCode
from tests.unit.coordinator.classic_groups import Bench, subscription

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = ClassicState

CONFIG = ClassicGroupConfig(initial_rebalance_delay_ms=3_000, max_size=6, max_record_bytes=4_000)
INSTANCES = ("i1", "i2", "i3")
PROTOCOLS = (
    {"range": subscription("orders")},
    {"range": subscription("bills"), "sticky": b"s"},
    {"sticky": b"s", "range": subscription("orders")},
)
LONGEST_REBALANCE_MS = 20_000

picks = st.integers(0, 1_000)
timeouts = st.sampled_from([(6_000, 5_000), (10_000, LONGEST_REBALANCE_MS)])  # session, rebalance
protocols = st.sampled_from(PROTOCOLS)
versions = st.sampled_from([0, 3, 5, 8, 9])
behind = st.sampled_from([0, 0, 0, 1, -1])


@dataclass
class LiveClient:
    """A client that does what the protocol asks of it, once a second."""

    bench: Bench
    instance: str | None
    member_id: str = ""
    generation: int = -1
    joining: int | None = None
    syncing: int | None = None

    def step(self) -> None:
        if self.joining is None and self.syncing is None:
            error = self.bench.heartbeat(self.member_id, self.generation, self.instance)
            if error is not ErrorCode.NONE:
                self.forget_id_after(error)
                self.join()
        if self.joining is not None and self.joining in self.bench.replies:
            reply, self.joining = self.bench.replies[self.joining], None
            self.forget_id_after(reply.error_code)
            if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = reply.member_id
                self.join()
            elif reply.error_code == ErrorCode.NONE:
                self.member_id, self.generation = reply.member_id, reply.generation_id
                assignments = {member.member_id: member.member_id.encode() for member in reply.members}
                self.syncing = self.bench.send_sync(
                    self.member_id, self.generation, assignments, instance=self.instance
                )
        if self.syncing is not None and self.syncing in self.bench.replies:
            reply, self.syncing = self.bench.replies[self.syncing], None
            self.forget_id_after(reply.error_code)

    def join(self) -> None:
        self.joining = self.bench.send_join(self.member_id, self.instance, PROTOCOLS[0], rebalance_ms=5_000)

    def forget_id_after(self, error: int) -> None:
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member_id = ""
        if error not in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self.generation = -1


class ClassicGroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(CONFIG)
        self.ids = ["nobody"]  # every id that was ever given out
        self.instance_of: dict[str, str | None] = {"nobody": None}
        self.requests: dict[int, tuple[str, str | None]] = {}  # joins and syncs: who asked, by id or by instance
        self.seen: set[int] = set()
        self.assigned: dict[tuple[int, bytes], str] = {}  # generation and attempt of the leader's that went through
        self.attempts = 0
        self.generation = 0
        self.out: set[str] = set()  # left, or fenced by their successor

    @property
    def group(self) -> ClassicGroup:
        return self.bench.group

    def pick(self, number: int) -> str:
        """A member as a rule, and now and then anybody who ever was one."""
        members = [member.member_id for member in self.group.members if member.member_id in self.instance_of]
        return members[number % len(members)] if members and number % 4 else self.ids[number % len(self.ids)]

    # What clients do

    @initialize(instances=st.lists(st.sampled_from(INSTANCES), unique=True, max_size=3), others=st.integers(0, 2))
    def begin_with_a_stable_group(self, instances: list[str], others: int) -> None:
        for instance in (*instances, *[None] * others):
            self.come(instance, PROTOCOLS[1], (10_000, LONGEST_REBALANCE_MS), 3 if instance is None else 9)
        self.wait(2 * 3_000)
        if instances or others:
            self.settle()

    @rule(instance=st.sampled_from((None, None, *INSTANCES)), protocols=protocols, timeouts=timeouts, version=versions)
    def come(self, instance: str | None, protocols: dict[str, bytes], timeouts: tuple[int, int], version: int) -> None:
        if version < 5:
            instance = None
        session_ms, rebalance_ms = timeouts
        token = self.bench.send_join(
            "", instance, protocols, session_ms=session_ms, rebalance_ms=rebalance_ms, version=version
        )
        self.requests[token] = ("", instance)
        self.read_replies()

    @rule(pick=picks, named=st.booleans(), protocols=protocols, timeouts=timeouts)
    def join(self, pick: int, named: bool, protocols: dict[str, bytes], timeouts: tuple[int, int]) -> None:
        member_id = self.pick(pick)
        instance = self.instance_of[member_id] if named else None
        session_ms, rebalance_ms = timeouts
        token = self.bench.send_join(member_id, instance, protocols, session_ms=session_ms, rebalance_ms=rebalance_ms)
        self.requests[token] = (member_id, instance)
        self.read_replies()

    @rule(pick=picks, named=st.booleans(), behind=behind, size=st.sampled_from([0, 0, 0, 5_000]))
    def sync(self, pick: int, named: bool, behind: int, size: int) -> None:
        member_id = self.pick(pick)
        self.send_sync(member_id, self.instance_of[member_id] if named else None, behind, size)

    @precondition(lambda self: self.group.state is COMPLETING)
    @rule()
    def lead(self) -> None:
        leader = self.group.members.leader
        assert leader is not None
        self.send_sync(leader.member_id, leader.group_instance_id, 0, 0)

    @precondition(lambda self: self.group.members)
    @rule()
    def settle(self) -> None:
        """All members do what is asked of them."""
        if self.group.state is PREPARING:
            for member in [member for member in self.group.members if member.join_token is None]:
                token = self.bench.send_join(member.member_id, member.group_instance_id, dict(member.protocols))
                self.requests[token] = (member.member_id, member.group_instance_id)
            self.read_replies()
        if self.group.state is COMPLETING:
            self.lead()
        for member in list(self.group.members):
            self.send_sync(member.member_id, member.group_instance_id, 0, 0)

    def send_sync(self, member_id: str, instance: str | None, behind: int, size: int) -> None:
        self.attempts += 1
        generation = self.group.generation_id - behind
        stamp = b"%d/%d/" % (generation, self.attempts) + bytes(size)
        assignments = {member.member_id: stamp + member.member_id.encode() for member in self.group.members}
        token = self.bench.send_sync(member_id, generation, assignments, instance=instance)
        self.requests[token] = (member_id, instance)
        self.read_replies()

    @rule(pick=picks, named=st.booleans(), behind=behind)
    def heartbeat(self, pick: int, named: bool, behind: int) -> None:
        member_id = self.pick(pick)
        error = self.bench.heartbeat(
            member_id, self.group.generation_id - behind, self.instance_of[member_id] if named else None
        )
        assert error is not ErrorCode.NONE or (member_id not in self.out and behind == 0)
        self.read_replies()

    @rule(picks=st.lists(picks, min_size=1, max_size=3), named=st.booleans())
    def leave(self, picks: list[int], named: bool) -> None:
        leaving = [self.pick(pick) for pick in picks]
        identities = [(member_id, self.instance_of[member_id] if named else None) for member_id in leaving]
        reply = self.bench.leave(*identities)
        for member_id, result in zip(leaving, reply.members, strict=True):
            if result.error_code == ErrorCode.NONE:
                assert member_id not in self.out
                self.out.add(member_id)
        self.read_replies()

    @rule(pick=picks, named=st.booleans(), behind=behind, transactional=st.booleans())
    def commit(self, pick: int, named: bool, behind: int, transactional: bool) -> None:
        member_id = self.pick(pick)
        generation = self.group.generation_id - behind
        instance = self.instance_of[member_id] if named else None
        error = self.bench.commit(member_id, generation, instance, transactional=transactional)
        if error is ErrorCode.NONE and generation >= 0:
            assert member_id not in self.out
            assert generation == self.generation
        elif error is ErrorCode.NONE:
            assert self.group.state is EMPTY

    @rule(milliseconds=st.sampled_from([1, 1_000, 3_000, 7_000]))
    def wait(self, milliseconds: int) -> None:
        self.bench.advance(milliseconds)
        self.read_replies()

    @precondition(lambda self: self.group.is_recorded and self.attempts % 3 == 0)
    @rule()
    def lose_the_coordinator(self) -> None:
        """What was not recorded is as if it had not been, and who waits hears of NOT_COORDINATOR elsewhere."""
        waiting = self.bench.waiting
        before, self.bench = self.bench, self.bench.reload()
        self.bench.random = before.random  # ids stay unique
        self.bench.group._random = before.random
        self.bench.tokens = before.tokens
        self.bench.replies = {**before.replies, **dict.fromkeys(waiting)}
        self.seen |= waiting
        self.generation = self.group.generation_id
        self.out = set()

    # What they hear

    def read_replies(self) -> None:
        for token in sorted(self.requests.keys() - self.seen):
            reply = self.bench.replies.get(token)
            if reply is None:
                continue
            self.seen.add(token)
            member_id, instance = self.requests[token]
            if hasattr(reply, "assignment"):
                self.read_sync(reply.error_code, reply.assignment)
            else:
                self.read_join(member_id, instance, reply.error_code, reply.member_id, reply.generation_id)

    def read_join(self, asked: str, instance: str | None, error: int, member_id: str, generation: int) -> None:
        if error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED) and asked == "":
            assert member_id not in self.instance_of
            if instance is not None:
                self.out |= {other for other, known in self.instance_of.items() if known == instance}
            self.ids.append(member_id)
            self.instance_of[member_id] = instance
        if error == ErrorCode.NONE:
            assert generation in (self.generation, self.generation + 1)
            self.generation = generation

    def read_sync(self, error: int, assignment: bytes) -> None:
        if error == ErrorCode.NONE and assignment:
            generation, attempt, addressee = assignment.split(b"/", 2)
            self.assigned[int(generation), attempt] = addressee.decode()
            assert len({attempt for of, attempt in self.assigned if of == int(generation)}) == 1

    # What always holds

    @invariant()
    def members_are_counted_rightly(self) -> None:
        members = self.group.members
        assert members.joined == sum(member.join_token is not None for member in members)
        assert members._supporters == Counter(name for member in members for name, _ in member.protocols)
        assert (members.leader_id in members) if members else (members.leader_id is None)
        assert {member.group_instance_id for member in members if member.group_instance_id} == set(members._by_instance)
        assert not members.pending & {member.member_id for member in members}
        assert bool(members) or self.group.state in (EMPTY, PREPARING)
        assert self.group.state is not EMPTY or not members

    @invariant()
    def who_waits_is_waiting_for_what_comes(self) -> None:
        joins = {member.join_token for member in self.group.members} - {None}
        syncs = {member.sync_token for member in self.group.members} - {None}
        assert joins | syncs == self.bench.waiting
        assert not joins or self.group.state is PREPARING
        assert not syncs or self.group.state is COMPLETING

    @invariant()
    def a_timer_runs_for_everything_that_may_never_come(self) -> None:
        timers, members = self.bench.timers, self.group.members
        assert (TimerKey("g", JOIN) in timers) == (self.group.state is PREPARING)
        assert (TimerKey("g", SYNC) in timers) == bool(members.unsynced)
        assert not members.unsynced or self.group.state in (COMPLETING, STABLE)
        for member in members:
            assert TimerKey("g", SESSION, member.member_id) in timers or (member.is_waiting and not member.is_new)
        assert all(TimerKey("g", SESSION, member_id) in timers for member_id in members.pending)
        others = len(timers) - sum(TimerKey("g", SESSION, member.member_id) in timers for member in members)
        assert others - len(members.pending) <= 2  # nobody else has one

    @invariant()
    def one_generation_is_current_and_no_two_members_have_one_assignment(self) -> None:
        assert self.group.generation_id in (self.generation, self.generation + 1)
        self.generation = self.group.generation_id
        assignments = [member.assignment for member in self.group.members if member.assignment]
        assert len(assignments) == len(set(assignments))
        if self.group.state is STABLE:
            generations = {assignment.split(b"/")[0] for assignment in assignments}
            assert generations <= {b"%d" % self.generation}

    @invariant()
    def the_log_has_what_counts(self) -> None:
        if not self.group.is_recorded or self.group.state not in (STABLE, EMPTY):
            return
        loaded = self.bench.reload()
        assert loaded.group.state is self.group.state
        assert loaded.group.generation_id == self.group.generation_id
        assert loaded.group.protocol_type == self.group.protocol_type
        assert loaded.group.subscribed_topics == self.group.subscribed_topics
        assert loaded.group.described() == self.group.described()
        for member_id in self.ids:
            instance = self.instance_of[member_id]
            for generation in (self.group.generation_id, self.group.generation_id - 1):
                assert loaded.commit(member_id, generation, instance) == self.bench.commit(
                    member_id, generation, instance
                )

    # In the end

    def teardown(self) -> None:
        clients = [LiveClient(self.bench, instance) for instance in (None, "i1", None)]
        for _ in range(8 * LONGEST_REBALANCE_MS // 1_000):
            for client in clients:
                client.step()
            self.bench.advance(1_000)
        assert self.group.state is STABLE
        assert {member.member_id for member in self.group.members} == {client.member_id for client in clients}
        assert not self.bench.waiting
        self.bench.advance(NEW_MEMBER_JOIN_TIMEOUT_MS)
        assert self.group.state is EMPTY
        assert not self.bench.waiting
        assert self.bench.timers.next_deadline_ms is None


TestClassicGroup = ClassicGroupMachine.TestCase
TestClassicGroup.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
