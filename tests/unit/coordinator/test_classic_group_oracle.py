"""Apache Kafka judges the classic group: the same requests to a real broker and to the machine, one after the other.

Every answer must be the same, and come at the same moment: what waits here waits there. After every request so must be
what DescribeGroups shows, and in the end the records in `__consumer_offsets`. Ids are each side's own, and so is the
choice of a leader when the former one is not there; here it is Kafka's that counts.

Left out is where a request that waits in Kafka is never answered, and here is: of a member that left, or that sent it
once more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any, TypeVar, cast

import pytest

from barnabas.coordinator.classic_group import ClassicGroup, ClassicGroupConfig
from barnabas.coordinator.classic_state import ClassicState
from barnabas.coordinator.group_records import GroupMetadataKey, GroupMetadataValue
from barnabas.coordinator.outcome import Now, Outcome, Token
from barnabas.coordinator.records import UnknownRecordType, decode_group_record
from barnabas.core.errors import ErrorCode
from barnabas.wire.compiler import codec
from barnabas.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.wire.messages.k12_heartbeat import HeartbeatRequest
from barnabas.wire.messages.k13_leave_group import LeaveGroupRequest
from barnabas.wire.messages.k14_sync_group import SyncGroupRequest
from barnabas.wire.messages.k15_describe_groups import DescribedGroup, DescribeGroupsRequest
from tests import peers
from tests.broker.wire_client import Client, Connection
from tests.peers import KafkaServer
from tests.unit.coordinator.classic_groups import Bench, subscription
from tests.unit.coordinator.conftest import MAX_CLASSIC_SIZE, MAX_SESSION_MS, MIN_SESSION_MS

pytestmark = pytest.mark.peers

R = TypeVar("R")

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = ClassicState
SCRIPTS = [*range(12), *(pytest.param(seed, marks=pytest.mark.proof) for seed in range(12, 40))]
STEPS = 40
CONFIG = ClassicGroupConfig(
    min_session_timeout_ms=MIN_SESSION_MS,
    max_session_timeout_ms=MAX_SESSION_MS,
    initial_rebalance_delay_ms=0,
    max_size=MAX_CLASSIC_SIZE,
)
ORDERS, BILLS = subscription("orders"), subscription("bills")
PROTOCOLS = ({"range": ORDERS, "sticky": b"s"}, {"range": ORDERS}, {"range": BILLS, "sticky": b"s"}, {"sticky": b"t"})
INSTANCES = ("i1", "i2", "i3")
PATIENCE_S = 10


@pytest.fixture(scope="module")
def kafka(judge: KafkaServer) -> Iterator[Client]:
    with Client(judge.address) as client:
        client.create_topic(name="orders")
        deadline = time.monotonic() + 30
        heartbeat = HeartbeatRequest(group_id="any", member_id="nobody")
        client.call(FindCoordinatorRequest(coordinator_keys=["any"]), 4)
        while client.call(heartbeat).error_code != ErrorCode.UNKNOWN_MEMBER_ID:
            assert time.monotonic() < deadline, "Kafka has no group coordinator"
            client.call(FindCoordinatorRequest(coordinator_keys=["any"]), 4)
            time.sleep(0.1)
        yield client


class Relay:
    """The group, to which every request goes by way of Kafka."""

    def __init__(self, twin: Twin, group: ClassicGroup) -> None:
        self._twin = twin
        self._group = group

    def __getattr__(self, name: str) -> Any:
        return getattr(self._group, name)

    def join(self, request: JoinGroupRequest, version: int, client: str, host: str, token: Token, now: Now) -> Outcome:
        theirs = replace(request, member_id=self._twin.theirs(request.member_id))
        self._twin.forward(token, theirs, version)
        return self._group.join(request, version, client, host, token, now)

    def sync(self, request: SyncGroupRequest, token: Token, now: Now) -> Outcome:
        assignments = [replace(each, member_id=self._twin.theirs(each.member_id)) for each in request.assignments]
        theirs = replace(request, member_id=self._twin.theirs(request.member_id), assignments=assignments)
        self._twin.forward(token, theirs, 4 if request.protocol_type is None else 5)
        return self._group.sync(request, token, now)

    def heartbeat(self, request: HeartbeatRequest, token: Token, now: Now) -> Outcome:
        self._twin.forward(token, replace(request, member_id=self._twin.theirs(request.member_id)), 4)
        return self._group.heartbeat(request, token, now)

    def leave(self, request: LeaveGroupRequest, version: int, token: Token, now: Now) -> Outcome:
        members = [replace(each, member_id=self._twin.theirs(each.member_id)) for each in request.members]
        theirs = replace(request, member_id=self._twin.theirs(request.member_id), members=members)
        self._twin.forward(token, theirs, version)
        return self._group.leave(request, version, token, now)


class Twin(Bench):
    """A bench whose every request goes to Kafka too; `check` compares what came of it."""

    def __init__(self, kafka: Client, address: str, group_id: str) -> None:
        super().__init__(CONFIG)
        self.kafka = kafka
        self.address = address
        self.group_id = group_id
        self.group = cast(ClassicGroup, Relay(self, self.group))
        self.our_ids: dict[str, str] = {}  # by theirs
        self.sent: dict[int, tuple[Connection, Any, int, int]] = {}
        self.idle: list[Connection] = []
        self.leader: str | None = None

    def close(self) -> None:
        for connection in (*self.idle, *(sent[0] for sent in self.sent.values())):
            connection.close()

    # To Kafka, and from there

    def theirs(self, our_id: str) -> str:
        return next((theirs for theirs, ours in self.our_ids.items() if ours == our_id), our_id)

    def ours(self, their_id: str) -> str:
        return self.our_ids.get(their_id, their_id)

    def forward(self, token: Token, request: Any, version: int) -> None:
        assert isinstance(token, int)
        connection = self.idle.pop() if self.idle else Connection(self.address)
        request = replace(request, group_id=self.group_id)
        self.sent[token] = (connection, request, version, connection.send(request, version))

    def receive(self, token: int) -> tuple[Any, int]:
        """Kafka's answer, and its version."""
        connection, request, version, correlation_id = self.sent.pop(token)
        assert connection.has_answer(PATIENCE_S), f"{request} waits in Kafka and not here"
        response = connection.receive(request, version, correlation_id)
        self.idle.append(connection)
        return response, version

    def check(self) -> None:
        self.advance(0)
        answered = sorted(token for token in self.sent if token in self.replies)
        theirs = {token: self.receive(token) for token in answered}
        for token, (response, _) in theirs.items():
            ours = self.replies[token]
            assert ErrorCode(response.error_code) == ErrorCode(ours.error_code)
            if isinstance(response, JoinGroupResponse) and response.member_id not in self.our_ids and ours.member_id:
                self.our_ids[response.member_id] = ours.member_id
        for token, (response, version) in theirs.items():
            if isinstance(response, JoinGroupResponse):
                self.check_join(token, response, version)
            else:
                assert self.with_our_ids(response) == sent(self.replies[token], version)
        time.sleep(0.01 if self.sent else 0)
        for token, (connection, request, _, _) in self.sent.items():
            assert not connection.has_answer(0), f"request {token}, {request}, waits here and not in Kafka"
        self.check_description()

    def check_join(self, token: int, response: JoinGroupResponse, version: int) -> None:
        response = self.with_our_ids(response)
        ours: JoinGroupResponse = self.replies[token]
        if response.error_code == ErrorCode.NONE and response.leader != ours.leader:
            # Another had to be chosen, and for the first of these answers, or by it, was.
            assert self.leader not in self.group.members or self.leader == response.leader
            assert self.group.state is COMPLETING
            self.group.members.leader_id = response.leader
            member = self.group.members.get(ours.member_id)
            assert member is not None
            ours = self.group.join_response(member)
        ours = sent(ours, version)
        for each in (response, ours):
            each.members = sorted(each.members, key=lambda member: str(member.member_id))
            each.protocol_name = each.protocol_name or ""  # of an error Kafka says one or the other
        assert response == ours
        if response.error_code == ErrorCode.NONE:
            self.leader = response.leader

    def with_our_ids(self, response: Any) -> Any:
        changes: dict[str, Any] = {}
        for name in ("member_id", "leader"):
            if hasattr(response, name):
                changes[name] = self.ours(getattr(response, name))
        if hasattr(response, "members"):
            changes["members"] = [replace(each, member_id=self.ours(each.member_id)) for each in response.members]
        return replace(response, **changes)

    def description(self, group: DescribedGroup) -> tuple[Any, ...]:
        """What must be the same; not the ids of members who do not know them yet."""
        members = sorted(
            (
                self.ours(each.member_id) if self.ours(each.member_id) in self.our_ids.values() else "",
                each.group_instance_id or "",
                bytes(each.member_metadata),
                bytes(each.member_assignment),
            )
            for each in group.members
        )
        return group.group_state, group.protocol_type, group.protocol_data, members

    def check_description(self) -> None:
        """Other connections are served meanwhile, so that a request may still be on its way to where it waits."""
        request = DescribeGroupsRequest(groups=[self.group_id])
        peers.eventually(
            lambda: self.description(self.kafka.call(request, 5).groups[0]), self.description(self.group.described())
        )

    def check_commit(self, member_id: str, generation: int, instance: str | None) -> None:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=generation,
            member_id=self.theirs(member_id),
            group_instance_id=instance,
            topics=[OffsetCommitRequestTopic(name="orders", partitions=[partition])],
        )
        theirs = self.kafka.call(request, 9).topics[0].partitions[0].error_code
        assert ErrorCode(theirs) == self.commit(member_id, generation, instance)

    def check_records(self) -> None:
        theirs: list[GroupMetadataValue] = []
        for each in self.kafka.read_all("__consumer_offsets"):
            try:
                key, value = decode_group_record(bytes(each.key or b""), each.value and bytes(each.value))
            except UnknownRecordType:
                continue
            if key == GroupMetadataKey(group=self.group_id):
                assert value is not None
                theirs.append(value)
        ours: list[Any] = [decode_group_record(*record)[1] for record in self.log]
        assert [self.comparable(value) for value in theirs] == [self.comparable(value) for value in ours]

    def comparable(self, value: GroupMetadataValue) -> GroupMetadataValue:
        members = [replace(each, member_id=self.ours(each.member_id), client_id="") for each in value.members]
        return replace(
            value,
            leader=None if value.leader is None else self.ours(value.leader),
            current_state_timestamp=0,
            members=sorted(members, key=lambda each: str(each.member_id)),
        )

    def wait(self, milliseconds: int) -> None:
        time.sleep(milliseconds / 1000)
        self.advance(milliseconds)
        self.check()


def sent(response: R, version: int) -> R:
    """The response as it arrives."""
    message = codec(type(response), version)
    return message.decode(memoryview(b"".join(message.encode(response))))[0]


@pytest.fixture
def twin(kafka: Client, request: pytest.FixtureRequest) -> Iterator[Twin]:
    host, port = kafka.socket.getpeername()
    twin = Twin(kafka, f"{host}:{port}", f"{request.node.name}-{time.time_ns()}")
    yield twin
    twin.close()


class Script:
    """Requests drawn at random, of members that are in, were in, or never were."""

    def __init__(self, twin: Twin, random: Random) -> None:
        self.twin = twin
        self.random = random
        self.ids = ["nobody"]
        self.instances: dict[str, str | None] = {"nobody": None}

    def run(self) -> None:
        requests = [self.come, self.join, self.sync, self.lead, self.all_join, self.heartbeat, self.leave, self.commit]
        weights = [2, 2, 1, 2, 2, 1, 1, 1]
        self.twin.send_join()
        self.twin.check()  # there is a group
        for _ in range(STEPS):
            self.random.choices(requests, weights)[0]()
            self.twin.check()
            self.note_ids()
        self.twin.check_records()

    def note_ids(self) -> None:
        for member in self.twin.group.members:
            self.instances[member.member_id] = member.group_instance_id
        self.ids += [each for each in self.twin.our_ids.values() if each not in self.ids]

    def pick(self) -> tuple[str, str | None]:
        told = [each for each in self.twin.our_ids.values() if each in self.twin.group.members]
        member_id = self.random.choice(told if told and self.random.random() < 0.8 else self.ids)
        instance = self.instances.get(member_id)
        return member_id, instance if self.random.random() < 0.8 else None

    def is_waiting(self, member_id: str) -> bool:
        member = self.twin.group.members.get(member_id)
        return member is not None and member.is_waiting

    def generation(self) -> int:
        return self.twin.group.generation_id - self.random.choice([0, 0, 0, 0, 1])

    def come(self) -> None:
        instance = self.random.choice([None, None, *INSTANCES])
        version = self.random.choice([3, 5, 8, 9] if instance is None else [5, 8, 9])
        session_ms = self.random.choice([30_000] * 9 + [99])
        protocol_type = self.random.choice(["consumer"] * 9 + ["connect"])
        self.twin.send_join(
            "",
            instance,
            self.random.choice(PROTOCOLS),
            version=version,
            session_ms=session_ms,
            protocol_type=protocol_type,
        )

    def join(self) -> None:
        member_id, instance = self.pick()
        if not self.is_waiting(member_id):
            self.twin.send_join(member_id, instance, self.random.choice(PROTOCOLS))

    def all_join(self) -> None:
        for member in list(self.twin.group.members):
            if not member.is_waiting and self.twin.group.state is PREPARING:
                self.twin.send_join(member.member_id, member.group_instance_id, dict(member.protocols))
                self.twin.check()

    def sync(self) -> None:
        member_id, instance = self.pick()
        if not self.is_waiting(member_id):
            kind, name = self.random.choice(
                [(None, None), ("consumer", "range"), ("consumer", "sticky"), ("connect", "range")]
            )
            assignments = {each.member_id: b"by any" for each in self.twin.group.members}
            self.twin.send_sync(
                member_id, self.generation(), assignments, instance=instance, protocol_name=name, protocol_type=kind
            )

    def lead(self) -> None:
        leader = self.twin.group.members.leader
        if self.twin.group.state is COMPLETING and leader is not None and not leader.is_waiting:
            assignments = {each.member_id: b"to " + each.member_id.encode() for each in self.twin.group.members}
            self.twin.send_sync(
                leader.member_id, self.twin.group.generation_id, assignments, instance=leader.group_instance_id
            )

    def heartbeat(self) -> None:
        member_id, instance = self.pick()
        self.twin.heartbeat(member_id, self.generation(), instance)

    def leave(self) -> None:
        leaving = [self.pick() for _ in range(self.random.choice([1, 1, 2]))]
        if self.random.random() < 0.2:
            leaving.append(("", self.random.choice(INSTANCES)))
        of_instances = {instance for _, instance in leaving} - {None}
        if any(
            member.sync_token is not None
            for member in self.twin.group.members
            if member.member_id in dict(leaving) or member.group_instance_id in of_instances
        ):
            return
        version = self.random.choice([0, 2, 3, 5]) if len(leaving) == 1 and leaving[0][1] is None else 5
        self.twin.leave(*leaving, version=version)

    def commit(self) -> None:
        self.twin.check_commit(*self.pick_commit())

    def pick_commit(self) -> tuple[str, int, str | None]:
        member_id, instance = self.pick()
        return self.random.choice([(member_id, self.generation(), instance)] * 4 + [("", -1, None)])


@pytest.mark.parametrize("seed", SCRIPTS)
def test_requests_in_any_order_are_answered_as_kafka_answers_them(twin: Twin, seed: int) -> None:
    Script(twin, Random(seed)).run()


# Time-outs, of one second; what is waited for lies well off their multiples.


def stable(twin: Twin, *instances: str | None, session_ms: int, rebalance_ms: int) -> list[str]:
    """A stable group; dynamic members join in a version without the round trip."""
    joins = []
    for instance in instances:
        version = 3 if instance is None else 9
        joins.append(twin.send_join("", instance, version=version, session_ms=session_ms, rebalance_ms=rebalance_ms))
        twin.check()
        for member in list(twin.group.members):
            if not member.is_waiting and twin.group.state is PREPARING:
                twin.send_join(
                    member.member_id, member.group_instance_id, session_ms=session_ms, rebalance_ms=rebalance_ms
                )
                twin.check()
    leader = twin.group.members.leader
    assert leader is not None
    followers = [member for member in twin.group.members if member is not leader]
    for member in (leader, *followers):
        twin.send_sync(member.member_id, twin.group.generation_id, instance=member.group_instance_id)
        twin.check()
    assert twin.group.state is STABLE
    return [twin.replies[join].member_id for join in joins]


@pytest.mark.proof
def test_sessions_end_as_in_kafka(twin: Twin) -> None:
    ids = stable(twin, None, None, session_ms=1_000, rebalance_ms=30_000)
    twin.wait(600)
    assert twin.heartbeat(ids[0], twin.group.generation_id) == ErrorCode.NONE
    twin.check()
    twin.wait(700)
    assert twin.group.state is PREPARING
    assert twin.heartbeat(ids[0], twin.group.generation_id) == ErrorCode.REBALANCE_IN_PROGRESS
    twin.check()
    twin.wait(1_600)
    assert twin.group.state is EMPTY
    twin.check_records()


def test_an_id_that_is_not_used_ends_as_in_kafka(twin: Twin) -> None:
    member_id = twin.member_id(session_ms=1_000)
    twin.check()
    twin.wait(1_600)
    assert twin.error(twin.send_join(member_id)) == ErrorCode.UNKNOWN_MEMBER_ID
    twin.check()


@pytest.mark.proof
def test_rebalances_end_as_in_kafka(twin: Twin) -> None:
    ids = stable(twin, None, None, "i1", session_ms=30_000, rebalance_ms=1_000)
    join = twin.send_join(ids[0], protocols={"range": BILLS}, session_ms=30_000, rebalance_ms=1_000)
    twin.check()
    twin.wait(1_500)  # the other dynamic member is out, the static one is not, and what leads has joined
    assert twin.error(join) == ErrorCode.NONE
    assert [member.group_instance_id for member in twin.group.members] == [None, "i1"]
    twin.send_sync(ids[0], twin.group.generation_id, {ids[2]: b"away"})
    twin.check()
    assert twin.group.state is STABLE
    twin.wait(1_000)  # the static one has not synced, and is out too
    assert (twin.group.state, len(twin.group.members)) == (PREPARING, 1)
    twin.wait(1_000)
    assert twin.group.state is EMPTY
    twin.check_records()
