"""Loads on the coordinators of groups and transactions, each in a process of its own (see `loads.run`).

A member is a connection that says what a consumer of the classic protocol says, and no more: it finds its coordinator,
fetches a member id, joins, syncs and commits.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine
from statistics import median
from typing import Any

import uvloop
from confluent_kafka import Producer

from barnabas.core.errors import ErrorCode
from barnabas.wire.compiler import codec
from barnabas.wire.headers import encode_request_header
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

SESSION_MS = 30_000
HEARTBEAT_SECONDS = 0.02
RECORDS_PER_TRANSACTION = 100
NOT_READY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
"""While the internal topic is being made."""

# The newest versions whose headers have no tagged fields.
VERSIONS: dict[type, tuple[int, int, type[Any]]] = {
    OffsetCommitRequest: (8, 7, OffsetCommitResponse),
    FindCoordinatorRequest: (10, 2, FindCoordinatorResponse),
    JoinGroupRequest: (11, 5, JoinGroupResponse),
    HeartbeatRequest: (12, 3, HeartbeatResponse),
    SyncGroupRequest: (14, 3, SyncGroupResponse),
}


class Member:
    """One member of a group, on a connection of its own with one request in flight."""

    def __init__(self, group: str, topic: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.group, self.topic = group, topic
        self._reader, self._writer = reader, writer
        self.member_id, self.generation = "", -1

    @classmethod
    async def connect(cls, address: str, group: str, topic: str) -> Member:
        host, port = address.rsplit(":", 1)
        return cls(group, topic, *await asyncio.open_connection(host, int(port)))

    def close(self) -> None:
        self._writer.close()

    async def ask(self, message: Any) -> Any:
        key, version, response = VERSIONS[type(message)]
        body = b"".join(codec(type(message), version).encode(message))
        request = encode_request_header(key, version, 1, "bench") + body
        self._writer.write(len(request).to_bytes(4, "big") + request)
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        answer, _ = codec(response, version).decode(memoryview(await self._reader.readexactly(size)), 4)
        return answer

    async def find_coordinator(self) -> None:
        """Wait until there is one; the first question creates the internal topic."""
        while code := (await self.ask(FindCoordinatorRequest(key=self.group))).error_code:
            if code not in NOT_READY:
                raise RuntimeError(f"no coordinator: error code {code}")
            await asyncio.sleep(0.05)

    async def join(self) -> JoinGroupResponse:
        """Join, with the round trip for a member id where there is none yet."""
        while True:
            answer: JoinGroupResponse = await self.ask(
                JoinGroupRequest(
                    group_id=self.group,
                    session_timeout_ms=SESSION_MS,
                    rebalance_timeout_ms=SESSION_MS,
                    member_id=self.member_id,
                    protocol_type="consumer",
                    protocols=[JoinGroupRequestProtocol("range", _subscription(self.topic))],
                )
            )
            self.member_id, self.generation = answer.member_id, answer.generation_id
            if answer.error_code == ErrorCode.NONE:
                return answer
            if answer.error_code in NOT_READY:
                await asyncio.sleep(0.05)
            elif answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                raise RuntimeError(f"joining failed with error code {answer.error_code}")

    async def sync(self, joined: JoinGroupResponse) -> int:
        """Sync, as the leader with something for everybody; the error code."""
        assignments = [SyncGroupRequestAssignment(each.member_id, b"assignment") for each in joined.members]
        answer = await self.ask(
            SyncGroupRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                assignments=assignments,
            )
        )
        code: int = answer.error_code
        return code

    async def heartbeat(self) -> int:
        answer = await self.ask(
            HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
        )
        code: int = answer.error_code
        return code

    async def commit(self, offset: int) -> None:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        answer = await self.ask(
            OffsetCommitRequest(
                group_id=self.group,
                generation_id_or_member_epoch=self.generation,
                member_id=self.member_id,
                topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[partition])],
            )
        )
        code = answer.topics[0].partitions[0].error_code
        if code:
            raise RuntimeError(f"a commit failed with error code {code}")

    async def enter(self) -> None:
        """Become the only member of a group."""
        await self.find_coordinator()
        if code := await self.sync(await self.join()):
            raise RuntimeError(f"syncing failed with error code {code}")


async def groups(address: str, topic: str, count: int) -> dict[str, float]:
    """So many groups at once, each of one member that joins and commits once; the connections are there before."""
    run = uuid.uuid4().hex[:8]
    members = [await Member.connect(address, f"g-{run}-{number}", topic) for number in range(count)]

    async def enter_and_commit(member: Member) -> None:
        await member.enter()
        await member.commit(1)

    started = time.perf_counter()
    await asyncio.gather(*map(enter_and_commit, members))
    elapsed = time.perf_counter() - started
    for member in members:
        member.close()
    return {"seconds": elapsed}


async def commits(address: str, topic: str, groups: int, seconds: float) -> dict[str, float]:
    """Commits of one partition, one in flight in each group."""
    run = uuid.uuid4().hex[:8]
    members = [await Member.connect(address, f"c-{run}-{number}", topic) for number in range(groups)]
    await asyncio.gather(*(member.enter() for member in members))
    latencies: list[float] = []
    started = time.perf_counter()

    async def go_on(member: Member) -> None:
        now = time.perf_counter()
        while now - started < seconds:
            await member.commit(len(latencies))
            sent, now = now, time.perf_counter()
            latencies.append(now - sent)

    await asyncio.gather(*map(go_on, members))
    elapsed = time.perf_counter() - started
    for member in members:
        member.close()
    latencies.sort()
    return {"commits_per_s": len(latencies) / elapsed, "p99_ms": latencies[len(latencies) * 99 // 100] * 1e3}


async def rebalances(address: str, topic: str, members: int, count: int) -> dict[str, float]:
    """New groups one after the other, all of whose members join at once; until all are in one generation."""
    times = [await _rebalance(address, topic, members) for _ in range(count)]
    return {"median_ms": median(times) * 1e3}


async def _rebalance(address: str, topic: str, members: int) -> float:
    group = f"r-{uuid.uuid4().hex[:8]}"
    everybody = [await Member.connect(address, group, topic) for _ in range(members)]
    await everybody[0].find_coordinator()
    settled: Counter[int] = Counter()
    stable_at = 0.0

    async def live(member: Member) -> None:
        nonlocal stable_at
        while not stable_at:
            if await member.sync(await member.join()):
                continue  # somebody else came
            settled[member.generation] += 1
            if settled[member.generation] == members:
                stable_at = time.perf_counter()
            code = 0
            while not stable_at and not code:
                await asyncio.sleep(HEARTBEAT_SECONDS)
                code = await member.heartbeat()

    started = time.perf_counter()
    await asyncio.gather(*map(live, everybody))
    for member in everybody:
        member.close()
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


def _looped(load: Callable[..., Coroutine[Any, Any, dict[str, float]]]) -> Callable[..., dict[str, float]]:
    return lambda **arguments: uvloop.run(load(**arguments))


LOADS: dict[str, Callable[..., dict[str, float]]] = {
    "groups": _looped(groups),
    "commits": _looped(commits),
    "rebalances": _looped(rebalances),
    "transactions": transactions,
}

if __name__ == "__main__":
    print(json.dumps(LOADS[sys.argv[1]](**json.loads(sys.argv[2]))))
