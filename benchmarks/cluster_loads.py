"""Loads on a cluster of brokers, each in a process of its own (see `loads.run`), all through librdkafka."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from itertools import pairwise

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

REPLICAS = 3
VALUE = b"x" * 1024
CREATION_TIMEOUT = 110.0
TRIED_PARTITIONS = 200


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
    AdminClient({"bootstrap.servers": address}).delete_topics([topic], request_timeout=CREATION_TIMEOUT)[topic].result()
    return {}


def paced(address: str, topic: str, per_second: int, seconds: float) -> dict[str, float]:
    """Single records at an even pace, none of which waits for another; from the call to the acknowledgement."""
    producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0})
    latencies: list[float] = []

    def sent_at(moment: float) -> Callable[[KafkaError | None, Message], None]:
        def acknowledged(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                raise RuntimeError(f"a record was not acknowledged: {error}")
            latencies.append(time.perf_counter() - moment)

        return acknowledged

    producer.list_topics(topic, timeout=20)
    started = time.perf_counter()
    for number in range(int(per_second * seconds)):
        due = started + number / per_second
        while (early := due - time.perf_counter()) > 0:
            producer.poll(early)
        producer.produce(topic, VALUE, partition=0, on_delivery=sent_at(time.perf_counter()))
        producer.poll(0)
    if left := producer.flush(30):
        raise RuntimeError(f"{left} records were not acknowledged")
    latencies.sort()
    return {"p50_ms": latencies[len(latencies) // 2] * 1e3, "p99_ms": latencies[len(latencies) * 99 // 100] * 1e3}


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
