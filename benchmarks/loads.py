"""The loads that a broker is put under, each in a process of its own so that client and broker do not share a loop.

`run` starts one, of this module or of another, and gives what it measured: a dictionary of numbers. Clients are set up
so that the broker is the limit as far as two cores allow: large batches, deep queues, and lists instead of single
messages.
"""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.records.builder import BatchBuilder
from barnabas.wire.compiler import codec
from barnabas.wire.headers import encode_request_header
from barnabas.wire.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

ROOT = Path(__file__).resolve().parent.parent
PRODUCE_KEY, PRODUCE_VERSION = 0, 8
CORRELATION_ID = 1
ANSWER_BODY = 8  # after the length and the correlation id
LIST_SIZE = 1_000


def run(module: str, load: str, timeout: float, /, **arguments: object) -> dict[str, float]:
    """Run one of the loads of a module in a new process, for at most `timeout` seconds."""
    command = [sys.executable, "-m", module, load, json.dumps(arguments)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=timeout, check=True)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def create_topic(address: str, topic: str, partitions: int = 1) -> None:
    """Create a topic and wait until it has leaders."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found = admin.list_topics(timeout=20).topics.get(topic)
        if found and all(partition.leader >= 0 for partition in found.partitions.values()):
            return
        time.sleep(0.02)
    raise TimeoutError(f"topic {topic!r} has no leaders after 20 s")


def produce(address: str, topic: str, count: int, value_bytes: int, partitions: int = 1) -> dict[str, float]:
    """Produce with acks=all through librdkafka; the clock stops when the last record is acknowledged."""
    failures: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": address,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: failures.append(str(error)),
            "error_cb": lambda error: failures.append(str(error)),
        }
    )
    producer.list_topics(topic, timeout=20)
    messages = [{"value": b"x" * value_bytes}] * LIST_SIZE
    most_queued = min(400_000, 200_000_000 // value_bytes)
    started = time.perf_counter()
    for number in range(count // LIST_SIZE):
        while len(producer) > most_queued:
            producer.poll(0.002)
        if producer.produce_batch(topic, messages, number % partitions) != LIST_SIZE:
            raise RuntimeError(f"librdkafka refused records: {messages[0]}")
    left = producer.flush(120)
    elapsed = time.perf_counter() - started
    if left or failures:
        raise RuntimeError(f"{left} records were not acknowledged; {failures[:3]}")
    return _rate(count // LIST_SIZE * LIST_SIZE, value_bytes, elapsed)


def consume(address: str, topic: str, count: int, value_bytes: int) -> dict[str, float]:
    """Read a partition from its beginning through librdkafka in kcat: in Python, making the objects is the limit."""
    command = [
        "kcat", "-b", address, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-c", str(count), "-q", "-u", "-f", "",
        "-X", "queued.min.messages=1000000", "-X", "queued.max.messages.kbytes=1048576",
    ]  # fmt: skip
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return _rate(count, value_bytes, time.perf_counter() - started)


def requests(address: str, topic: str, connections: int, seconds: float, value_bytes: int) -> dict[str, float]:
    """Produce requests of one record, acks=all, one in flight on each connection, each to a partition of its own."""
    host, port = address.rsplit(":", 1)
    poll = select.poll()
    streams = {}
    for partition in range(connections):
        stream = socket.create_connection((host, int(port)), 10)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = produce_request(topic, partition, value_bytes)
        stream.sendall(request)
        answer = answer_of(stream)
        check(answer)
        stream.setblocking(False)
        poll.register(stream, select.POLLIN)
        streams[stream.fileno()] = (stream, request, len(answer), [time.perf_counter()])

    error_code = error_code_position(topic)
    latencies: list[float] = []
    clock, record = time.perf_counter, latencies.append
    for stream, request, _, sent in streams.values():
        sent[0] = clock()
        stream.send(request)
    started = now = clock()
    while now - started < seconds:
        for fd, _ in poll.poll(10_000):
            stream, request, size, sent = streams[fd]
            answer = stream.recv(4096)
            now = clock()
            if len(answer) != size or answer[error_code : error_code + 2] != b"\0\0":
                raise RuntimeError(f"the broker answered with an error, or in pieces: {answer.hex()}")
            record(now - sent[0])
            sent[0] = now
            stream.send(request)
    for stream, _, _, _ in streams.values():
        stream.close()
    latencies.sort()
    return {
        "requests_per_s": len(latencies) / (now - started),
        "p50_ms": latencies[len(latencies) // 2] * 1e3,
        "p99_ms": latencies[len(latencies) * 99 // 100] * 1e3,
    }


def produce_request(topic: str, partition: int, value_bytes: int) -> bytes:
    """One record, acks=all."""
    batch = BatchBuilder()
    batch.append(None, b"x" * value_bytes, timestamp_ms=int(time.time() * 1000))
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(partition, batch.build())])
    message = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])
    body = b"".join(codec(ProduceRequest, PRODUCE_VERSION).encode(message))
    request = encode_request_header(PRODUCE_KEY, PRODUCE_VERSION, CORRELATION_ID, "bench") + body
    return len(request).to_bytes(4, "big") + request


def error_code_position(topic: str) -> int:
    """In an answer to `produce_request`, so that it need not be decoded: answers differ in their base offsets alone."""
    return ANSWER_BODY + 4 + 2 + len(topic) + 4 + 4


def answer_of(stream: socket.socket) -> bytes:
    answer = b""
    while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
        chunk = stream.recv(4096)
        if not chunk:
            raise ConnectionError("the broker closed the connection")
        answer += chunk
    return answer


def check(answer: bytes) -> None:
    response, _ = codec(ProduceResponse, PRODUCE_VERSION).decode(memoryview(answer), ANSWER_BODY)
    error_code = response.responses[0].partition_responses[0].error_code
    if error_code:
        raise RuntimeError(f"the broker refused a record with error code {error_code}")


def _rate(count: int, value_bytes: int, elapsed: float) -> dict[str, float]:
    return {"records_per_s": count / elapsed, "mb_per_s": count * value_bytes / elapsed / 1e6, "seconds": elapsed}


LOADS: dict[str, Callable[..., dict[str, float]]] = {"produce": produce, "consume": consume, "requests": requests}

if __name__ == "__main__":
    print(json.dumps(LOADS[sys.argv[1]](**json.loads(sys.argv[2]))))
