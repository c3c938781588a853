"""Loads on the coordinators of groups and transactions, each in a process of its own (see `loads.run`).

A member says what a consumer of the classic protocol says, and no more: it finds its coordinator, fetches a member id,
joins, syncs, heartbeats and commits. Members are scripts of a `Swarm`.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Generator
from statistics import median

from confluent_kafka import Producer

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from benchmarks.swarm import Script, Swarm, decoder, encoder

SESSION_MS = 30_000
RECORDS_PER_TRANSACTION = 100
NOT_READY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
"""While the internal topic is being made."""
PAUSE_SECONDS = 0.01

# The newest versions whose headers have no tagged fields.
find, found = encoder(FindCoordinatorRequest, 10, 2), decoder(FindCoordinatorResponse, 2)
join, joined = encoder(JoinGroupRequest, 11, 5), decoder(JoinGroupResponse, 5)
heartbeat, beaten = encoder(HeartbeatRequest, 12, 3), decoder(HeartbeatResponse, 3)
sync, synced = encoder(SyncGroupRequest, 14, 3), decoder(SyncGroupResponse, 3)
commit, committed = encoder(OffsetCommitRequest, 8, 7), decoder(OffsetCommitResponse, 7)


class Member:
    """One member of a group. Its methods are parts of scripts: `yield from` them."""

    def __init__(self, group: str, topic: str) -> None:
        self.group, self.topic = group, topic
        self.member_id, self.generation = "", -1

    def find_coordinator(self) -> Script:
        """Wait until there is one; the first question creates the internal topic."""
        while code := found((yield find(FindCoordinatorRequest(key=self.group)))).error_code:
            if code not in NOT_READY:
                raise RuntimeError(f"no coordinator: error code {code}")
            time.sleep(PAUSE_SECONDS)

    def join(self) -> Generator[bytes, bytes, JoinGroupResponse]:
        """Join, with the round trip for a member id where there is none yet."""
        while True:
            answer: JoinGroupResponse = joined(
                (
                    yield join(
                        JoinGroupRequest(
                            group_id=self.group,
                            session_timeout_ms=SESSION_MS,
                            rebalance_timeout_ms=SESSION_MS,
                            member_id=self.member_id,
                            protocol_type="consumer",
                            protocols=[JoinGroupRequestProtocol("range", _subscription(self.topic))],
                        )
                    )
                )
            )
            self.member_id, self.generation = answer.member_id, answer.generation_id
            if answer.error_code == ErrorCode.NONE:
                return answer
            if answer.error_code in NOT_READY:
                time.sleep(PAUSE_SECONDS)
            elif answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                raise RuntimeError(f"joining failed with error code {answer.error_code}")

    def sync(self, generation: JoinGroupResponse) -> Generator[bytes, bytes, int]:
        """Sync, as the leader with something for everybody; the error code."""
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=[SyncGroupRequestAssignment(each.member_id, b"assignment") for each in generation.members],
        )
        code: int = synced((yield sync(request))).error_code
        return code

    def heartbeat(self) -> Generator[bytes, bytes, int]:
        request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
        code: int = beaten((yield heartbeat(request))).error_code
        return code

    def commit(self, offset: int) -> Script:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[partition])],
        )
        code = committed((yield commit(request))).topics[0].partitions[0].error_code
        if code:
            raise RuntimeError(f"a commit failed with error code {code}")

    def enter(self) -> Script:
        """Become the only member of a group."""
        yield from self.find_coordinator()
        if code := (yield from self.sync((yield from self.join()))):
            raise RuntimeError(f"syncing failed with error code {code}")


def groups(address: str, topic: str, count: int) -> dict[str, float]:
    """So many groups at once, each of one member that joins and commits once; the connections are there before."""
    run = uuid.uuid4().hex[:8]

    def enter_and_commit(member: Member) -> Script:
        yield from member.enter()
        yield from member.commit(1)

    swarm = Swarm(address, count)
    started = time.perf_counter()
    swarm.run([enter_and_commit(Member(f"g-{run}-{number}", topic)) for number in range(count)])
    elapsed = time.perf_counter() - started
    swarm.close()
    return {"seconds": elapsed}


def commits(address: str, topic: str, groups: int, seconds: float) -> dict[str, float]:
    """Commits of one partition, one in flight in each group."""
    run = uuid.uuid4().hex[:8]
    members = [Member(f"c-{run}-{number}", topic) for number in range(groups)]
    swarm = Swarm(address, groups)
    swarm.run([member.enter() for member in members])
    latencies: list[float] = []

    def go_on(member: Member) -> Script:
        now = time.perf_counter()
        while now - started < seconds:
            yield from member.commit(len(latencies))
            sent, now = now, time.perf_counter()
            latencies.append(now - sent)

    started = time.perf_counter()
    swarm.run([go_on(member) for member in members])
    elapsed = time.perf_counter() - started
    swarm.close()
    latencies.sort()
    return {"commits_per_s": len(latencies) / elapsed, "p99_ms": latencies[len(latencies) * 99 // 100] * 1e3}


def rebalances(address: str, topic: str, members: int, count: int) -> dict[str, float]:
    """New groups one after the other, all of whose members join at once; until all are in one generation."""
    swarm = Swarm(address, members)
    times = [_rebalance(swarm, topic, members) for _ in range(count)]
    swarm.close()
    return {"median_ms": median(times) * 1e3}


def _rebalance(swarm: Swarm, topic: str, members: int) -> float:
    """A member that is settled asks again and again whether it still is, so that no pause of its own is measured."""
    group = f"r-{uuid.uuid4().hex[:8]}"
    settled: Counter[int] = Counter()
    stable_at = 0.0

    def live(member: Member) -> Script:
        nonlocal stable_at
        while not stable_at:
            if (yield from member.sync((yield from member.join()))):
                continue  # somebody else came
            settled[member.generation] += 1
            if settled[member.generation] == members:
                stable_at = time.perf_counter()
            while not stable_at and not (yield from member.heartbeat()):
                pass

    started = time.perf_counter()
    swarm.run([live(Member(group, topic)) for _ in range(members)])
    return stable_at - started


def transactions(address: str, topic: str, seconds: float) -> dict[str, float]:
    """One transaction after the other from one producer through librdkafka."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": f"x-{uuid.uuid4().hex[:8]}", "linger.ms": 0})
    producer.init_transactions(20)
    value, count = b"x" * 100, 0
    started = now = time.perf_counter()
    while now - started < seconds:
        producer.begin_transaction()
        for number in range(RECORDS_PER_TRANSACTION):
            producer.produce(topic, value, partition=number % 8)
        producer.commit_transaction(20)
        count += 1
        now = time.perf_counter()
    return {"transactions_per_s": count / (now - started)}


def _subscription(topic: str) -> bytes:
    """The metadata of a consumer that subscribes to one topic, version 0."""
    name = topic.encode()
    return b"\0\0" + b"\0\0\0\1" + len(name).to_bytes(2, "big") + name + b"\xff\xff\xff\xff"


LOADS: dict[str, Callable[..., dict[str, float]]] = {
    "groups": groups,
    "commits": commits,
    "rebalances": rebalances,
    "transactions": transactions,
}

if __name__ == "__main__":
    print(json.dumps(LOADS[sys.argv[1]](**json.loads(sys.argv[2]))))
