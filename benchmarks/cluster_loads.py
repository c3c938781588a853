"""Loads on a cluster of brokers, each in a process of its own (see `loads.run`)."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from itertools import pairwise

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import loads

REPLICAS = 3
VALUE = b"x" * 1024
CREATION_TIMEOUT = 110.0
TRIED_PARTITIONS = 200
PACED_CONNECTIONS = 20
PACED_TIMEOUT = 20.0


def create(address: str, topic: str, partitions: int) -> dict[str, float]:
    """A topic; the time until a client sees a leader and all replicas of each partition, and until it can be used."""
    admin = AdminClient({"bootstrap.servers": address})
    producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0})
    admin.list_topics(timeout=20)
    started = time.perf_counter()
    admin.create_topics([NewTopic(topic, partitions, REPLICAS)], request_timeout=CREATION_TIMEOUT)[topic].result()
    while not _is_there(admin, topic, partitions):
        if time.perf_counter() - started > CREATION_TIMEOUT:
            raise TimeoutError(f"the partitions of {topic!r} are not all there after {CREATION_TIMEOUT:.0f} s")
        time.sleep(0.02)
    created = time.perf_counter() - started
    for partition in range(0, partitions, max(1, partitions // TRIED_PARTITIONS)):
        producer.produce(topic, VALUE, partition=partition)
    if left := producer.flush(CREATION_TIMEOUT):
        raise TimeoutError(f"{left} partitions of {topic!r} take no record after {CREATION_TIMEOUT:.0f} s")
    return {"seconds": created, "usable_seconds": time.perf_counter() - started}


def _is_there(admin: AdminClient, topic: str, partitions: int) -> bool:
    found = admin.list_topics(topic, timeout=20).topics[topic].partitions.values()
    return len(found) == partitions and all(each.leader > 0 and len(each.isrs) == REPLICAS for each in found)


def delete(address: str, topic: str) -> dict[str, float]:
    admin = AdminClient({"bootstrap.servers": address})
    admin.delete_topics([topic], request_timeout=CREATION_TIMEOUT)[topic].result()
    return {}


def paced(address: str, topic: str, per_second: int, seconds: float) -> dict[str, float]:
    """Requests of one record at an even pace, on several connections, for an answer may take longer than the pause.

    The time of each counts from when it was due, so that one that had to wait for a connection is not forgotten.
    """
    found = AdminClient({"bootstrap.servers": address}).list_topics(topic, timeout=20)
    leader = found.brokers[found.topics[topic].partitions[0].leader]
    request = loads.produce_request(topic, 0, len(VALUE))
    idle = []
    for _ in range(PACED_CONNECTIONS):
        stream = socket.create_connection((leader.host, leader.port), 20)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.sendall(request)
        loads.check(loads.answer_of(stream))
        idle.append(stream)

    error_code = loads.error_code_position(topic)
    count = int(per_second * seconds)
    waiting: dict[socket.socket, float] = {}
    latencies: list[float] = []
    sent = 0
    started = time.perf_counter()
    while len(latencies) < count:
        due = started + sent / per_second
        early = due - time.perf_counter()
        if early <= 0 and idle and sent < count:
            stream = idle.pop()
            stream.sendall(request)
            waiting[stream] = due
            sent += 1
            continue
        pause = early if idle and sent < count else PACED_TIMEOUT
        ready, _, _ = select.select(list(waiting), [], [], pause)
        if not ready and pause == PACED_TIMEOUT:
            raise TimeoutError(f"no answer within {PACED_TIMEOUT:.0f} s")
        for stream in ready:
            answer = loads.answer_of(stream)
            latencies.append(time.perf_counter() - waiting.pop(stream))
            if answer[error_code : error_code + 2] != b"\0\0":
                raise RuntimeError(f"the broker answered with an error: {answer.hex()}")
            idle.append(stream)
    for stream in idle:
        stream.close()
    latencies.sort()
    return {"p50_ms": latencies[count // 2] * 1e3, "p99_ms": latencies[count * 99 // 100] * 1e3}


def outage(address: str, topic: str, pids: dict[str, int]) -> dict[str, float]:
    """Kill the leader of a partition that is written to; the longest time between two acknowledgements."""
    producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0})
    found = producer.list_topics(topic, timeout=20).topics[topic].partitions[0]
    acknowledged: list[float] = []

    def note(error: KafkaError | None, _: Message) -> None:
        if error is None:
            acknowledged.append(time.perf_counter())

    def write(until: Callable[[], bool], patience: float) -> None:
        deadline = time.perf_counter() + patience
        while not until():
            if time.perf_counter() > deadline:
                raise TimeoutError(f"no write was acknowledged within {patience:.0f} s")
            if len(producer) < 1000:
                producer.produce(topic, VALUE, partition=0, on_delivery=note)
            producer.poll(0.005)

    write(lambda: len(acknowledged) >= 200, 20)
    killed = time.perf_counter()
    os.kill(pids[str(found.leader)], signal.SIGKILL)
    write(lambda: acknowledged[-1] > killed + 0.5, 60)  # what the leader had answered before is read by then
    producer.flush(30)
    late = [moment for moment in acknowledged if moment > killed - 1]
    return {"seconds": max(after - before for before, after in pairwise(late))}


LOADS: dict[str, Callable[..., dict[str, float]]] = {
    "create": create,
    "delete": delete,
    "paced": paced,
    "outage": outage,
}

if __name__ == "__main__":
    print(json.dumps(LOADS[sys.argv[1]](**json.loads(sys.argv[2]))))
