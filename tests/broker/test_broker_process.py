"""A broker as a process: how it stops and refuses to start, what it counts, and what it writes into its log."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k18_api_versions import ApiVersionsRequest
from tests.broker.metrics import Metrics
from tests.broker.servers import barnabas_only
from tests.broker.test_broker_fetch import FOREVER_MS, request_for
from tests.broker.wire_client import Client, batch, produce_request
from tests.cli.commands import run_barnabas
from tests.peers import HOST, BarnabasServer, eventually, free_port

pytestmark = barnabas_only("Kafka's process, metrics and logs are its own")


@pytest.fixture(scope="module")
def metrics() -> Metrics:
    return Metrics(free_port())


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, metrics: Metrics) -> Iterator[BarnabasServer]:
    """A broker with metrics and JSON logs, whose log must be without a stack trace in the end."""
    arguments = [*metrics.arguments, "--log-format", "json"]
    with BarnabasServer(tmp_path_factory.mktemp("watched") / "data", arguments=arguments) as server:
        yield server
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    assert lines
    assert [line for line in lines if "trace" in line] == []
    assert all({"time", "level", "logger", "event"} <= line.keys() for line in lines)


# stopping and starting


def test_it_stops_with_connections_open_and_requests_waiting(tmp_path: Path) -> None:
    with (
        BarnabasServer(tmp_path / "data") as server,
        Client(server.address) as idle,
        Client(server.address) as waiting,
        Client(server.address) as half,
    ):
        topic = idle.create_topic()
        idle.produce(topic, batch(b"x" * 1_000_000))
        waiting.send(request_for((topic, 0, 1), wait_ms=FOREVER_MS), 12)
        half.socket.sendall(struct.pack(">i", 1000) + b"\0\1")
        assert not waiting.has_answer(0.2)
        assert server.stop() == 0
        assert waiting.is_closed_by_broker()
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_it_stops_while_a_client_does_not_read_its_answers(tmp_path: Path) -> None:
    with BarnabasServer(tmp_path / "data") as server, Client(server.address) as client:
        topic = client.create_topic()
        for _ in range(20):
            client.produce(topic, batch(b"x" * 1_000_000))
        for _ in range(20):
            client.send(request_for((topic, 0, 0)), 12)
        assert server.stop() == 0


def test_a_directory_of_another_cluster_is_refused_in_one_line(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with BarnabasServer(tmp_path / name):
            pass
    settings = f"log.dirs={tmp_path / 'one'},{tmp_path / 'two'}"
    done = run_barnabas("up", "--data-dir", str(tmp_path / "one"), "--port", "0", "--set", settings)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("barnabas: ")
    assert str(tmp_path / "two") in last
    assert "cluster" in last
    assert "Traceback" not in done.stderr


def test_a_directory_of_another_broker_is_refused_in_one_line(tmp_path: Path) -> None:
    with BarnabasServer(tmp_path / "data"):
        pass
    done = run_barnabas("up", "--data-dir", str(tmp_path / "data"), "--port", "0", "--set", "node.id=7")
    assert done.returncode == 1
    assert "node.id" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_metrics_on_a_port_in_use_are_refused_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        arguments = ["up", "--data-dir", str(tmp_path / "data"), "--port", "0", "--metrics-port", str(port)]
        done = run_barnabas(*arguments)
    assert done.returncode == 1
    assert str(port) in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("option", ["--port", "--metrics-port"])
def test_a_refused_start_leaves_nothing_to_recover(tmp_path: Path, option: str) -> None:
    metrics = Metrics(free_port())
    with BarnabasServer(tmp_path / "data") as server, Client(server.address) as client:
        topic = client.create_topic()
        client.produce(topic, batch(b"kept"))
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        refused = run_barnabas("up", "--data-dir", str(tmp_path / "data"), "--port", "0", option, port)
        assert refused.returncode == 1
    arguments = metrics.arguments
    with BarnabasServer(tmp_path / "data", arguments=arguments) as server, Client(server.address) as client:
        assert [record.value for record in client.read_all(topic)] == [b"kept"]
        assert metrics.value("barnabas_recovery_scanned_bytes_total") == 0


# metrics


def test_requests_errors_and_latencies_are_counted_per_api(watched: BarnabasServer, metrics: Metrics) -> None:
    with Client(watched.address) as client:
        before = metrics.scrape()
        topic = client.create_topic()
        for _ in range(3):
            client.produce(topic, batch())
        client.produce(topic, b"\0" * 80)
        client.fetch(topic, 99)
        after = metrics.scrape()

    def grown(name: str, **labels: str) -> float:
        key = (name, frozenset(labels.items()))
        return after.get(key, 0.0) - before.get(key, 0.0)

    names = {name for name, _ in after}
    assert grown("barnabas_requests_total", api="Produce", version="12") == 4
    assert grown("barnabas_requests_total", api="Fetch", version="12") == 1
    assert grown("barnabas_request_errors_total", api="Produce", error="INVALID_RECORD") == 1
    assert grown("barnabas_request_errors_total", api="Fetch", error="OFFSET_OUT_OF_RANGE") == 1
    assert "barnabas_request_seconds_bucket" in names


def test_bytes_connections_and_offsets_are_counted(watched: BarnabasServer, metrics: Metrics) -> None:
    with Client(watched.address) as client:
        topic = client.create_topic()
        received = metrics.value("barnabas_received_bytes_total")
        records = batch(b"x" * 100_000)
        client.produce(topic, records)
        assert 0 <= metrics.value("barnabas_received_bytes_total") - received - len(records) < 1000
        assert metrics.value("barnabas_connections_open") >= 1
        labels = {"topic": topic, "partition": "0"}
        assert metrics.value("barnabas_partition_size_bytes", **labels) == len(records)
        assert metrics.value("barnabas_partition_log_end_offset", **labels) == 1
        assert metrics.value("barnabas_partition_log_start_offset", **labels) == 0
        assert metrics.value("barnabas_partition_high_watermark", **labels) == 1
    eventually(lambda: metrics.value("barnabas_connections_open"), 0.0)


def test_records_leave_by_sendfile(watched: BarnabasServer, metrics: Metrics) -> None:
    with Client(watched.address) as client:
        topic = client.create_topic()
        records = batch(b"x" * 500_000)
        for _ in range(4):
            client.produce(topic, records)
        by_sendfile = metrics.value("barnabas_sent_bytes_total", by="sendfile")
        by_copy = metrics.value("barnabas_sent_bytes_total", by="copy")
        assert len(client.fetch(topic).records) == 4 * len(records)
        assert metrics.value("barnabas_sent_bytes_total", by="sendfile") - by_sendfile == 4 * len(records)
        assert metrics.value("barnabas_sent_bytes_total", by="copy") - by_copy < 1000


# logs


def test_a_clients_mistakes_cost_a_line_each_and_no_stack_trace(watched: BarnabasServer, metrics: Metrics) -> None:
    before = metrics.value("barnabas_client_mistakes_total")
    failures = metrics.value("barnabas_unhandled_errors_total")
    mistakes = [
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", -5),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 3, 99, 1, -1),
        struct.pack(">ihhih", 14, 3, 1, 1, -1) + b"\x7f\xff\xff\xff",
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    ]
    for mistake in mistakes:
        with Client(watched.address) as client:
            client.socket.sendall(mistake)
            assert client.is_closed_by_broker()
    assert metrics.value("barnabas_client_mistakes_total") - before == len(mistakes)
    assert metrics.value("barnabas_unhandled_errors_total") == failures
    lines = [json.loads(line) for line in watched.log.read_text().splitlines()]
    told = [line for line in lines if line["event"] in ("bad frame", "bad request")]
    assert len(told) >= len(mistakes)
    assert all({"peer", "listener", "problem", "level"} <= line.keys() for line in told)


def test_refusals_inside_responses_are_no_business_of_the_log(watched: BarnabasServer) -> None:
    with Client(watched.address) as client:
        topic = client.create_topic()
        client.call(ApiVersionsRequest("test", "1"))
        before = len(watched.log.read_text().splitlines())
        for _ in range(20):
            assert client.produce(topic, b"\0" * 80).error_code == ErrorCode.INVALID_RECORD
            assert client.fetch(topic, 99).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        client.send(produce_request(topic, batch(), partition=9, acks=0), 12)
        assert client.is_closed_by_broker()
        assert len(watched.log.read_text().splitlines()) - before <= 1
