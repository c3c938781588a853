"""What the broker counts comes out of the endpoint as Prometheus reads it; no scraper can harm the loop."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from barnabas.broker.metrics import LATENCY_BOUNDS, Histogram, LoopProbe, Metrics, PartitionSample
from barnabas.broker.metrics_endpoint import MetricsEndpoint, render, take
from barnabas.core.errors import ErrorCode
from barnabas.net.server import Traffic

T = TypeVar("T")
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
PARTITIONS = [PartitionSample("orders", 0, 5, 90, 100, 4096), PartitionSample('odd "name"', 1, 0, 0, 0, 0)]


def samples(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scraped(metrics: Metrics, traffic: Traffic | None = None) -> Samples:
    body, content_type = render(take(metrics, traffic or Traffic(), PARTITIONS), {"codec": "compiled"}, "")
    assert content_type.startswith("text/plain")
    return samples(body.decode())


def value(found: Samples, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def test_requests_are_counted_by_version_and_timed_by_api() -> None:
    metrics = Metrics()
    for version, seconds in ((11, 0.0001), (11, 0.0002), (12, 0.3), (12, 99.0)):
        metrics.latencies(0, version).observe(seconds)
    metrics.latencies(1, 4).observe(0.5)
    found = scraped(metrics)
    assert value(found, "barnabas_requests_total", api="Produce", version="11") == 2
    assert value(found, "barnabas_requests_total", api="Produce", version="12") == 2
    assert value(found, "barnabas_request_seconds_count", api="Produce") == 4
    assert value(found, "barnabas_request_seconds_sum", api="Produce") == pytest.approx(99.3003)
    for bound, expected in (("0.0001", 1), ("0.00025", 2), ("0.25", 2), ("0.5", 3), ("30.0", 3), ("+Inf", 4)):
        assert value(found, "barnabas_request_seconds_bucket", api="Produce", le=bound) == expected
    assert value(found, "barnabas_request_seconds_count", api="Fetch") == 1


def test_a_duration_on_a_bound_belongs_below_it() -> None:
    for position, bound in enumerate(LATENCY_BOUNDS):
        histogram = Histogram()
        histogram.observe(bound)
        assert histogram.buckets[position] == 1


def test_errors_are_counted_by_code_whether_of_a_response_or_of_a_part() -> None:
    metrics = Metrics()
    metrics.error(3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    metrics.error(3, 3)
    metrics.error(0, ErrorCode.UNKNOWN_SERVER_ERROR)
    found = scraped(metrics)
    assert value(found, "barnabas_request_errors_total", api="Metadata", error="UNKNOWN_TOPIC_OR_PARTITION") == 2
    assert value(found, "barnabas_request_errors_total", api="Produce", error="UNKNOWN_SERVER_ERROR") == 1


def test_traffic_disk_and_partitions_are_told() -> None:
    metrics = Metrics()
    metrics.client_mistakes += 2
    metrics.unhandled_errors += 1
    metrics.fsync(0.004)
    metrics.recovered(scanned_bytes=1000, dropped_bytes=17, seconds=0.2)
    traffic = Traffic(bytes_in=10, copied_bytes_out=20, sendfile_bytes_out=30, accepted=5, refused=1)
    traffic.count_close("idle")
    traffic.count_close("idle")
    found = scraped(metrics, traffic)
    for name, expected in {
        "barnabas_received_bytes_total": 10,
        "barnabas_connections_accepted_total": 5,
        "barnabas_connections_refused_total": 1,
        "barnabas_connections_open": 3,
        "barnabas_client_mistakes_total": 2,
        "barnabas_unhandled_errors_total": 1,
        "barnabas_fsync_seconds_count": 1,
        "barnabas_fsync_seconds_sum": 0.004,
        "barnabas_recovery_seconds_count": 1,
        "barnabas_recovery_scanned_bytes_total": 1000,
        "barnabas_recovery_dropped_bytes_total": 17,
    }.items():
        assert value(found, name) == expected, name
    assert value(found, "barnabas_sent_bytes_total", by="copy") == 20
    assert value(found, "barnabas_sent_bytes_total", by="sendfile") == 30
    assert value(found, "barnabas_connections_closed_total", reason="idle") == 2
    assert value(found, "barnabas_partition_high_watermark", topic="orders", partition="0") == 90
    assert value(found, "barnabas_partition_log_start_offset", topic="orders", partition="0") == 5
    assert value(found, "barnabas_partition_log_end_offset", topic="orders", partition="0") == 100
    assert value(found, "barnabas_partition_size_bytes", topic="orders", partition="0") == 4096
    assert value(found, "barnabas_partition_size_bytes", topic='odd "name"', partition="1") == 0
    assert value(found, "barnabas_build_info", codec="compiled") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="prometheus-client reads /proc")
def test_the_process_itself_is_told() -> None:
    assert value(scraped(Metrics()), "process_resident_memory_bytes") > 1_000_000


def test_counting_a_request_costs_next_to_nothing() -> None:
    metrics = Metrics()
    rounds = []
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(10_000):
            metrics.latencies(0, 11).observe(0.0007)
        rounds.append((time.perf_counter() - started) / 10_000)
    assert min(rounds) < 5e-6  # a third of a microsecond where it was written; slack for a busy machine


def serving(check: Callable[[int], Awaitable[T]], metrics: Metrics | None = None) -> T:
    """Run a check against an endpoint; the check gets its port."""

    async def run() -> T:
        endpoint = MetricsEndpoint(metrics or Metrics(), Traffic(), lambda: PARTITIONS, {"version": "1"})
        port = await endpoint.start("127.0.0.1", 0)
        try:
            return await asyncio.wait_for(check(port), 20)
        finally:
            await endpoint.close()

    return asyncio.run(run())


async def ask(port: int, request: bytes) -> tuple[str, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    except ConnectionResetError:  # the endpoint closed while there was more to read
        return "", ""
    finally:
        writer.close()
    return head.decode(), body.decode()


def test_a_scraper_gets_the_format_that_it_accepts() -> None:
    metrics = Metrics()
    metrics.latencies(18, 4).observe(0.001)

    async def check(port: int) -> None:
        head, body = await ask(port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert head.startswith("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4")
        assert f"Content-Length: {len(body.encode())}" in head
        assert value(samples(body), "barnabas_requests_total", api="ApiVersions", version="4") == 1
        head, body = await ask(
            port, b"GET /metrics?x=1 HTTP/1.1\r\naccept: application/openmetrics-text; version=1.0.0\r\n\r\n"
        )
        assert "Content-Type: application/openmetrics-text" in head
        assert any(family.name == "barnabas_requests" for family in parse_openmetrics(body))  # type: ignore[no-untyped-call]

    serving(check, metrics)


@pytest.mark.parametrize(
    ("request_line", "status"),
    [(b"GET / HTTP/1.1", "404 Not Found"), (b"POST /metrics HTTP/1.1", "405 Method Not Allowed"), (b"x", "405")],
)
def test_other_requests_are_answered_with_what_is_wrong(request_line: bytes, status: str) -> None:
    async def check(port: int) -> str:
        return (await ask(port, request_line + b"\r\n\r\n"))[0]

    assert serving(check).startswith(f"HTTP/1.1 {status}")


def test_an_endless_or_silent_request_is_cut_off_and_others_are_served() -> None:
    async def check(port: int) -> None:
        silent_reader, silent = await asyncio.open_connection("127.0.0.1", port)
        head, _ = await ask(port, b"GET /metrics HTTP/1.1\r\nX: " + b"y" * 100_000)
        assert head == ""
        head, _ = await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")
        assert "200 OK" in head
        assert not silent_reader.at_eof()
        silent.close()

    serving(check)


def test_closing_does_not_wait_for_a_scraper_that_never_asks() -> None:
    async def run() -> float:
        endpoint = MetricsEndpoint(Metrics(), Traffic(), lambda: PARTITIONS, {})
        reader, writer = await asyncio.open_connection("127.0.0.1", await endpoint.start("127.0.0.1", 0))
        await asyncio.sleep(0.05)
        before = time.monotonic()
        await endpoint.close()
        closed = time.monotonic() - before
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        return closed

    assert asyncio.run(run()) < 2


def test_a_stall_of_the_loop_is_measured() -> None:
    async def run() -> Histogram:
        lag = Histogram()
        probe = LoopProbe(lag, asyncio.get_running_loop(), interval_s=0.01)
        await asyncio.sleep(0.05)
        time.sleep(0.12)  # noqa: ASYNC251  # the stall
        await asyncio.sleep(0.03)
        probe.close()
        counted = sum(lag.buckets)
        await asyncio.sleep(0.03)
        assert sum(lag.buckets) == counted
        return lag

    lag = asyncio.run(run())
    assert sum(lag.buckets[LATENCY_BOUNDS.index(0.1) + 1 :]) >= 1
