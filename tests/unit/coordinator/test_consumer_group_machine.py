"""A consumer group under everything that members and topics can do, at every step: at most one owner of a partition, no
commit of somebody who lost it, and a log that brings the group back as it is. Left in peace, it settles."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.coordinator.consumer_group import ConsumerGroupConfig
from barnabas.coordinator.group import CommittedPartition
from barnabas.coordinator.records import decode_group_record
from barnabas.coordinator.subscriptions import TopicInfo
from barnabas.core.errors import ErrorCode, KafkaError
from tests.unit.coordinator.consumer_groups import Client, Coordinator, replay, settle, state_of, topic_id

NAMES = ("a", "b", "c")
SUBSCRIPTIONS = st.one_of(
    st.sets(st.sampled_from(NAMES), min_size=1).map(lambda names: (sorted(names), "")),
    st.sampled_from([([], "a|b"), ([], ".*"), (["c"], "[a]")]),
)
SESSION_MS = 45_000
REVOKE_MS = 20_000


class GroupLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clients: list[Client] = []  # alive, though perhaps put out and not aware of it
        self.dead: list[Client] = []
        self.incarnations = dict.fromkeys(NAMES, 0)
        self.counts: dict[str, int] = {}
        self.born = 0

    @initialize(interval_ms=st.sampled_from([0, 1_000]), assignor=st.sampled_from(["uniform", "range"]))
    def start(self, interval_ms: int, assignor: str) -> None:
        assignors = ("uniform", "range") if assignor == "uniform" else ("range", "uniform")
        config = ConsumerGroupConfig(assignment_interval_ms=interval_ms, assignors=assignors, max_size=5)
        self.coordinator = Coordinator({}, config)
        self.replica = replay([])
        self.replicated = 0
        self.counts = {"a": 3, "b": 2}
        self.tell_topics()

    def tell_topics(self) -> None:
        self.coordinator.topics = {
            name: TopicInfo(topic_id(name, self.incarnations[name]), count) for name, count in self.counts.items()
        }

    def client(self, data: Any) -> Client:
        client: Client = data.draw(st.sampled_from(self.clients))
        return client

    @precondition(lambda self: len(self.clients) < 4)
    @rule(subscription=SUBSCRIPTIONS, instance=st.sampled_from([None, None, "i1", "i2"]), assignor=st.booleans())
    def comes(self, subscription: tuple[list[str], str], instance: str | None, assignor: bool) -> None:
        if any(client.instance_id == instance is not None for client in self.clients):
            instance = None
        self.born += 1
        client = Client(
            self.coordinator,
            f"m{self.born}",
            subscription[0],
            regex=subscription[1],
            instance_id=instance,
            assignor="range" if assignor else None,
            rebalance_timeout_ms=REVOKE_MS,
        )
        response = client.heartbeat()
        if response.error_code:
            assert response.error_code in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED)
        else:
            self.clients.append(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), full=st.booleans(), revokes=st.booleans())
    def beats(self, data: Any, full: bool, revokes: bool) -> None:
        self.beat(self.client(data), full, revokes)

    @precondition(lambda self: self.clients)
    @rule(revokes=st.booleans())
    def all_beat(self, revokes: bool) -> None:
        for client in list(self.clients):
            self.beat(client, False, revokes)

    def beat(self, client: Client, full: bool, revokes: bool) -> None:
        was_member = client.member_id in self.coordinator.group.members
        response = client.heartbeat(full=full, revokes=revokes)
        if not response.error_code:
            assert was_member or client.epoch > 0
        elif response.error_code in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.clients.remove(client)  # fatal for it
            self.dead.append(client)
            client.owned.clear()
        else:
            assert response.error_code in (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.GROUP_MAX_SIZE_REACHED,
            )
            assert not was_member or response.error_code == ErrorCode.FENCED_MEMBER_EPOCH
            client.epoch = 0
            client.owned.clear()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def loses_an_answer(self, data: Any) -> None:
        client = self.client(data)
        epoch, owned, told = client.epoch, set(client.owned), set(client.told)
        client.heartbeat(full=True)
        client.missed_an_answer = True
        client.epoch, client.owned, client.told = epoch, owned if epoch else set(), told if epoch else set()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), subscription=SUBSCRIPTIONS)
    def subscribes_anew(self, data: Any, subscription: tuple[list[str], str]) -> None:
        client = self.client(data)
        client.topics, client.regex = subscription
        self.beat(client, True, True)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def leaves(self, data: Any) -> None:
        client = self.client(data)
        self.clients.remove(client)
        self.dead.append(client)
        client.leave()
        client.owned.clear()

    @precondition(lambda self: any(client.instance_id for client in self.clients))
    @rule(comes_back=st.booleans())
    def restarts(self, comes_back: bool) -> None:
        client = next(client for client in self.clients if client.instance_id)
        left = client.leave(-2).error_code == 0
        self.clients.remove(client)
        self.dead.append(client)
        if comes_back and left:
            self.born += 1
            again = Client(
                self.coordinator,
                f"m{self.born}",
                client.topics,
                regex=client.regex,
                instance_id=client.instance_id,
                rebalance_timeout_ms=REVOKE_MS,
            )
            if again.heartbeat().error_code == 0:
                self.clients.append(again)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def dies(self, data: Any) -> None:
        client = self.client(data)
        self.clients.remove(client)
        self.dead.append(client)

    @rule(ms=st.sampled_from([500, 5_000, REVOKE_MS, SESSION_MS]))
    def time_passes(self, ms: int) -> None:
        self.coordinator.pass_time(ms)

    @rule(name=st.sampled_from(NAMES), more=st.integers(1, 2))
    def topic_grows(self, name: str, more: int) -> None:
        self.counts[name] = min(6, self.counts.get(name, 0) + more)
        self.tell_topics()

    @rule(name=st.sampled_from(NAMES), told_early=st.booleans())
    def topic_goes(self, name: str, told_early: bool) -> None:
        if self.counts.pop(name, None) is not None:
            self.incarnations[name] += 1
            self.tell_topics()
            if told_early:
                self.coordinator.keep(
                    self.coordinator.group.metadata_changed(self.coordinator.topics, self.coordinator.now)
                )

    @precondition(lambda self: self.clients or self.dead)
    @rule(data=st.data(), older=st.integers(0, 2), partition=st.integers(0, 3), name=st.sampled_from(NAMES))
    def commits(self, data: Any, older: int, partition: int, name: str) -> None:
        client = data.draw(st.sampled_from(self.clients + self.dead))
        group = self.coordinator.group
        committed = CommittedPartition(name, topic_id(name, self.incarnations[name]), partition)
        member = group.members.get(client.member_id)
        try:
            group.validate_offset_commit(
                client.member_id,
                client.instance_id,
                client.epoch - older,
                is_transactional=False,
                api_version=9,
                partitions=[committed],
            )
        except KafkaError as refusal:
            expected = ErrorCode.UNKNOWN_MEMBER_ID if member is None else ErrorCode.STALE_MEMBER_EPOCH
            assert refusal.code is expected  # noqa: PT017
            return
        if member is None:
            assert not group.members
            assert client.epoch - older < 0
        elif client.epoch - older != member.member_epoch:
            since = {**member.pending_revocation, **member.assigned}[committed.topic_id]
            assert since.get(partition, 0) <= client.epoch - older

    @invariant()
    def a_partition_has_one_owner(self) -> None:
        members = self.coordinator.group.members if self.clients or self.dead else {}
        owners = [client for client in self.clients + self.dead if client.member_id in members]
        owned = [partition for client in owners for partition in client.owned]
        assert len(owned) == len(set(owned))

    @invariant()
    def the_log_brings_it_back(self) -> None:
        if not hasattr(self, "coordinator"):
            return
        for key, value in self.coordinator.log[self.replicated :]:
            self.replica.fold(*decode_group_record(key, value))
        self.replicated = len(self.coordinator.log)
        assert state_of(self.replica) == state_of(self.coordinator.group)

    def teardown(self) -> None:
        if not hasattr(self, "coordinator"):
            return
        for _ in range(4):  # the dead are found out; the living may hear that they were put out, and join again
            self.coordinator.pass_time(SESSION_MS // 2 + 1)
            for client in list(self.clients):
                self.beat(client, False, True)
        if not self.clients:
            self.coordinator.pass_time(SESSION_MS)
            assert self.coordinator.group.state_name == "Empty"
            return
        for _ in range(12):
            self.coordinator.pass_time(1_500)
            for client in self.clients:
                assert client.heartbeat().error_code == 0
        group = self.coordinator.group
        assert group.state_name == "Stable"
        assert group.members.keys() == {client.member_id for client in self.clients}
        self.everything_is_read_once()

    def everything_is_read_once(self) -> None:
        group, topics = self.coordinator.group, self.coordinator.topics
        wanted = {
            (topics[name].id, partition)
            for name in group.subscribed_topics() & topics.keys()
            for partition in range(topics[name].partitions)
        }
        assert sorted(partition for client in self.clients for partition in client.owned) == sorted(wanted)
        for client in self.clients:
            mine = group.topics_of(group.members[client.member_id])
            assert {topic for topic, _ in client.owned} <= {topics[name].id for name in mine & topics.keys()}


TestGroupLife = GroupLife.TestCase
TestGroupLife.settings = settings(max_examples=250, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("size", [1, 7])
def test_a_group_settles_in_a_few_rounds(size: int) -> None:
    coordinator = Coordinator({"a": 20, "b": 9})
    clients = [Client(coordinator, f"m{number}", ["a", "b"]) for number in range(size)]
    for client in clients:
        client.heartbeat()
    settle(clients, rounds=3)
    assert sum(len(client.owned) for client in clients) == 29
    settle([Client(coordinator, "late", ["a"]), *clients], rounds=4)
