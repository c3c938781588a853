"""What librdkafka does, as it raises its epoch, with records that may be in the log already: it sends them again.

No broker can tell them from new ones. So this is how a record of its idempotent producer can be there twice, and chaos
counts it as the client's doing (docs/reliability.md). Once librdkafka takes care, this test fails: no excuse then.
"""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from confluent_kafka import Producer

from barnabas.core.errors import ErrorCode
from barnabas.sync import Admin
from barnabas.wire.compiler import codec
from barnabas.wire.headers import decode_request_header, response_head
from barnabas.wire.messages.k00_produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.chaos.resent import sent_again
from tests.checker.history import FinalLog, SentAgain, TopicPartition
from tests.cluster.whole_logs import read_to_end
from tests.hostile.wire import Wire, framed
from tests.peers import HOST, BarnabasServer, free_port

UNANSWERED, REFUSED = TopicPartition("orders", 0), TopicPartition("orders", 1)
WITHIN_S = 30.0
BACKOFF_MS = 5000


class Between:
    """Stands between a broker and its clients, one request at a time, and does what is asked of it once."""

    def __init__(self, broker: str) -> None:
        self.broker = broker
        self.is_to_cut = threading.Event()
        """A request to one partition is carried out, but its connection ends without a reply."""
        self.is_to_refuse = threading.Event()
        """A request to the other one is refused for now; the one behind it comes to the broker with a gap."""
        self.has_refused = threading.Event()

    def serve(self, client: Wire) -> None:
        with Wire(self.broker, WITHIN_S) as broker:
            while True:
                frame = client.receive()
                partition = _produced_to(frame)
                if partition == REFUSED and self.is_to_refuse.is_set():
                    self.is_to_refuse.clear()
                    self.has_refused.set()
                    following = client.receive()
                    client.send(_refusal(frame))
                    frame = following
                broker.send(framed(frame))
                reply = broker.receive()
                if partition == UNANSWERED and self.is_to_cut.is_set():
                    self.is_to_cut.clear()
                    return
                client.send(framed(reply))


class _Client(Wire):
    """The end of a connection that a client has made."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection


@contextmanager
def standing_between(broker: str, port: int) -> Iterator[Between]:
    between = Between(broker)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):  # either end is gone
                between.serve(_Client(self.request))

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Server((HOST, port), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield between
        server.shutdown()


def _produced_to(frame: bytes) -> TopicPartition | None:
    view = memoryview(frame)
    header = decode_request_header(view)
    if header.api_key != 0:
        return None
    request: ProduceRequest = codec(ProduceRequest, header.api_version).decode(view, header.body)[0]
    (topic,) = request.topic_data
    (partition,) = topic.partition_data
    return TopicPartition(topic.name, partition.index)


def _refusal(frame: bytes) -> bytes:
    header = decode_request_header(memoryview(frame))
    partition = PartitionProduceResponse(REFUSED.partition, ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    response = ProduceResponse([TopicProduceResponse(REFUSED.topic, partition_responses=[partition])])
    head = response_head(header.api_key, header.api_version)(header.correlation_id)
    reply = bytearray(b"".join([head, *codec(ProduceResponse, header.api_version).encode(response)]))
    struct.pack_into(">i", reply, 0, len(reply) - 4)
    return bytes(reply)


def test_records_that_may_be_in_the_log_are_sent_again_under_a_new_epoch(tmp_path: Path) -> None:
    port, behind = free_port(), free_port()
    advertised = {"advertised.listeners": f"PLAINTEXT://{HOST}:{port}"}
    with (
        BarnabasServer(tmp_path / "data", advertised, port=behind) as server,
        standing_between(f"{HOST}:{behind}", port) as between,
    ):
        with Admin(server.address) as admin:
            admin.topics.create(UNANSWERED.topic, partitions=2)
        producer = Producer(
            {
                "bootstrap.servers": server.address,
                "enable.idempotence": True,
                "linger.ms": 0,
                # So long what was not answered waits; meanwhile the epoch is raised.
                "retry.backoff.ms": BACKOFF_MS,
                "retry.backoff.max.ms": BACKOFF_MS,
                "log_level": 0,
            }
        )
        for partition in (UNANSWERED, REFUSED):
            producer.produce(*_to(partition, b"first"))
        assert producer.flush(WITHIN_S) == 0
        between.is_to_cut.set()
        between.is_to_refuse.set()
        producer.produce(*_to(UNANSWERED, b"second"))
        while between.is_to_cut.is_set():
            producer.poll(0.01)
        producer.produce(*_to(REFUSED, b"second"))
        assert between.has_refused.wait(WITHIN_S)
        producer.produce(*_to(REFUSED, b"third"))
        assert producer.flush(WITHIN_S) == 0
        logs, _ = read_to_end(server.address, [UNANSWERED, REFUSED])
    assert [value for _, value in logs[REFUSED]] == [b"first", b"second", b"third"]
    assert [value for _, value in logs[UNANSWERED]] == [b"first", b"second", b"second"]
    segments = sorted((tmp_path / "data" / str(UNANSWERED)).glob("*.log"))
    assert sent_again(FinalLog(UNANSWERED, 0, tuple(logs[UNANSWERED])), segments) == SentAgain(UNANSWERED, (2,))


def _to(partition: TopicPartition, value: bytes) -> tuple[str, bytes, None, int]:
    return partition.topic, value, None, partition.partition
