"""The Prometheus endpoint: `GET /metrics` over HTTP, on the broker's own loop.

The numbers of the moment are gathered on the loop, which owns them; turning them into text, which takes long when there
are thousands of partitions, is a thread's work. prometheus-client is imported by the first scrape, not by the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.metrics import LATENCY_BOUNDS, Histogram, Metrics, PartitionSample
from barnabas.broker.samples import NOTHING, StateSample
from barnabas.core.errors import ErrorCode
from barnabas.net.server import Traffic
from barnabas.wire.registry import api

if TYPE_CHECKING:
    from prometheus_client import Metric

_HEAD_LIMIT_BYTES = 8192
_HEAD_TIMEOUT_S = 5.0
_MAX_SCRAPERS = 16


class Scrape(NamedTuple):
    """Everything that one answer tells, taken at one moment."""

    requests: dict[tuple[int, int], tuple[list[int], float]]
    errors: dict[tuple[int, int], int]
    fetched_bytes: dict[tuple[str, str], int]
    durations: dict[str, tuple[list[int], float]]
    counters: dict[str, int]
    closed: dict[str, int]
    open_connections: int
    partitions: list[PartitionSample]
    state: StateSample


_COUNTERS = {
    "barnabas_received_bytes": "Bytes received from clients.",
    "barnabas_connections_accepted": "Connections accepted.",
    "barnabas_connections_refused": "Connections closed at once because of a limit.",
    "barnabas_client_mistakes": "Frames and requests that could not be understood.",
    "barnabas_unhandled_errors": "Requests, and work in the background, that failed for a reason of the broker's own.",
    "barnabas_recovery_scanned_bytes": "Bytes scanned after an unclean stop.",
    "barnabas_recovery_dropped_bytes": "Bytes cut off after an unclean stop: torn or corrupt.",
}
_DURATIONS = {
    "barnabas_fsync_seconds": "Time of a flush of a file to disk.",
    "barnabas_recovery_seconds": "Time to bring one log back after an unclean stop.",
    "barnabas_loop_lag_seconds": "How late the event loop was when a timer was due.",
}
_PARTITION_GAUGES = {
    "log_start_offset": "The first offset that can be read.",
    "high_watermark": "The offset up to which consumers may read.",
    "log_end_offset": "The offset that the next record will have.",
    "size_bytes": "Bytes of the log on disk.",
}
_COMPACTION_COUNTERS = {
    "rounds": "Rounds of compaction, each over one log.",
    "seconds": "Time spent in rounds of compaction.",
    "read_bytes": "Bytes of segments that compaction replaced.",
    "written_bytes": "Bytes of segments that compaction put in their place.",
}
_SCRUB_COUNTERS = {
    "rounds": "Rounds in which all segments were read to find damage.",
    "read_bytes": "Bytes read to find damage.",
    "damaged_segments": "Segments found with records that are wrong or missing.",
    "rebuilt_indexes": "Segments whose indexes were found wrong, and built again.",
}


def take(
    metrics: Metrics, traffic: Traffic, partitions: Iterable[PartitionSample], state: StateSample = NOTHING
) -> Scrape:
    """Copy the numbers; runs on the loop."""
    closed = dict(traffic.closed or {})
    return Scrape(
        {kind: _copy(histogram) for kind, histogram in metrics.requests.items()},
        dict(metrics.errors),
        dict(metrics.fetched_bytes),
        {
            "barnabas_fsync_seconds": _copy(metrics.fsyncs),
            "barnabas_recovery_seconds": _copy(metrics.recoveries),
            "barnabas_loop_lag_seconds": _copy(metrics.loop_lag),
        },
        {
            "barnabas_received_bytes": traffic.bytes_in,
            "barnabas_sent_bytes_sendfile": traffic.sendfile_bytes_out,
            "barnabas_sent_bytes_copy": traffic.copied_bytes_out,
            "barnabas_connections_accepted": traffic.accepted,
            "barnabas_connections_refused": traffic.refused,
            "barnabas_client_mistakes": metrics.client_mistakes,
            "barnabas_unhandled_errors": metrics.unhandled_errors,
            "barnabas_recovery_scanned_bytes": metrics.scanned_bytes,
            "barnabas_recovery_dropped_bytes": metrics.dropped_bytes,
        },
        closed,
        traffic.accepted - sum(closed.values()),
        list(partitions),
        state,
    )


def render(scrape: Scrape, build: Mapping[str, str], accept: str) -> tuple[bytes, str]:
    """The text of an answer and its content type, in the format that the client accepts; runs in a thread."""
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector

    class Snapshot(Collector):
        def collect(self) -> Iterator[Metric]:
            yield from _families(scrape, build)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Snapshot())
    ProcessCollector(registry=registry)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def _families(scrape: Scrape, build: Mapping[str, str]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily

    yield InfoMetricFamily("barnabas_build", "What runs here.", value=dict(build))

    requests = CounterMetricFamily("barnabas_requests", "Requests answered.", labels=("api", "version"))
    by_api: dict[str, tuple[list[int], float]] = {}
    for (key, version), (buckets, seconds) in sorted(scrape.requests.items()):
        name = api(key).name
        requests.add_metric((name, str(version)), sum(buckets))
        others, other_seconds = by_api.get(name, ([0] * len(buckets), 0.0))
        by_api[name] = [a + b for a, b in zip(buckets, others)], seconds + other_seconds
    yield requests

    latency = HistogramMetricFamily("barnabas_request_seconds", "Time from request to response.", labels=("api",))
    for name, (buckets, seconds) in by_api.items():
        latency.add_metric((name,), _cumulative(buckets), seconds)
    yield latency

    errors = CounterMetricFamily("barnabas_request_errors", "Error codes in responses.", labels=("api", "error"))
    for (key, code), count in sorted(scrape.errors.items()):
        errors.add_metric((api(key).name, ErrorCode(code).name), count)
    yield errors

    fetched = CounterMetricFamily(
        "barnabas_fetched_bytes",
        "Bytes of records in fetch responses, by who reads and by what this broker is to the partition.",
        labels=("reader", "role"),
    )
    for labels, size in sorted(scrape.fetched_bytes.items()):
        fetched.add_metric(labels, size)
    yield fetched

    sent = CounterMetricFamily(
        "barnabas_sent_bytes", "Bytes sent: straight from the page cache, or through the process.", labels=("by",)
    )
    for road in ("sendfile", "copy"):
        sent.add_metric((road,), scrape.counters[f"barnabas_sent_bytes_{road}"])
    yield sent

    for name, text in _COUNTERS.items():
        yield CounterMetricFamily(name, text, value=scrape.counters[name])
    for name, text in _DURATIONS.items():
        buckets, seconds = scrape.durations[name]
        yield HistogramMetricFamily(name, text, _cumulative(buckets), seconds)

    yield GaugeMetricFamily("barnabas_connections_open", "Connections open now.", value=scrape.open_connections)
    closed = CounterMetricFamily("barnabas_connections_closed", "Connections closed.", labels=("reason",))
    for reason, count in sorted(scrape.closed.items()):
        closed.add_metric((reason,), count)
    yield closed

    for field, text in _PARTITION_GAUGES.items():
        gauge = GaugeMetricFamily(f"barnabas_partition_{field}", text, labels=("topic", "partition"))
        for sample in scrape.partitions:
            gauge.add_metric((sample.topic, str(sample.partition)), getattr(sample, field))
        yield gauge
    yield from _state_families(scrape.state)


def _state_families(state: StateSample) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    shards = GaugeMetricFamily(
        "barnabas_coordinator_shards", "Partitions of internal topics led here.", labels=("coordinator", "state")
    )
    for labels, count in sorted(state.shards.items()):
        shards.add_metric(labels, count)
    yield shards

    groups = GaugeMetricFamily("barnabas_groups", "Groups coordinated here.", labels=("type", "state"))
    for labels, count in sorted(state.groups.items()):
        groups.add_metric(labels, count)
    yield groups

    transactional_ids = GaugeMetricFamily(
        "barnabas_transactional_ids", "Transactional ids coordinated here.", labels=("state",)
    )
    for label, count in sorted(state.transactional_ids.items()):
        transactional_ids.add_metric((label,), count)
    yield transactional_ids

    for field, text in _COMPACTION_COUNTERS.items():
        yield CounterMetricFamily(f"barnabas_compaction_{field}", text, value=getattr(state.compaction, field))
    yield GaugeMetricFamily(
        "barnabas_compaction_uncleanable_logs",
        "Logs that cannot be compacted because they are damaged.",
        value=state.uncleanable_logs,
    )

    for field, text in _SCRUB_COUNTERS.items():
        yield CounterMetricFamily(f"barnabas_scrub_{field}", text, value=getattr(state.scrub, field))
    yield GaugeMetricFamily(
        "barnabas_damaged_logs",
        "Logs with records that are wrong or missing; one that stays is the only copy.",
        value=state.damaged_logs,
    )
    yield CounterMetricFamily(
        "barnabas_renewed_logs", "Damaged logs that were given up, and fetched anew.", value=state.renewed_logs
    )

    yield GaugeMetricFamily(
        "barnabas_controller_active", "Whether this broker is the controller: 1 or 0.", value=state.is_controller
    )
    yield CounterMetricFamily(
        "barnabas_unclean_elections",
        "Partitions that this broker, as the controller, gave a leader that may miss acknowledged records.",
        value=state.unclean_elections,
    )


def _copy(histogram: Histogram) -> tuple[list[int], float]:
    return list(histogram.buckets), histogram.seconds


def _cumulative(buckets: list[int]) -> list[tuple[str, float]]:
    """Prometheus's buckets: each counts what is in it and below."""
    total, cumulative = 0, []
    for bound, count in zip((*map(str, LATENCY_BOUNDS), "+Inf"), buckets):
        total += count
        cumulative.append((bound, float(total)))
    return cumulative


class MetricsEndpoint:
    """An HTTP server just large enough for a scraper: one request per connection, bounded in size, time and number."""

    def __init__(
        self,
        metrics: Metrics,
        traffic: Traffic,
        partitions: Callable[[], Iterable[PartitionSample]],
        build: Mapping[str, str],
        state: Callable[[], StateSample] = lambda: NOTHING,
    ) -> None:
        """`partitions` and `state` are called on the loop; `build` tells version, Python, codec engine and the like."""
        self._metrics = metrics
        self._traffic = traffic
        self._partitions = partitions
        self._build = build
        self._state = state
        self._scrapers: set[asyncio.Task[None]] = set()
        self._one_at_a_time = asyncio.Lock()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Serve from now on; the port, which is another one if 0 was asked for."""
        self._server = await asyncio.start_server(self._answer, host, port, limit=_HEAD_LIMIT_BYTES)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        """Stop at once: a scrape that is under way is cut off."""
        if self._server is not None:
            self._server.close()
        for scraper in self._scrapers:
            scraper.cancel()
        await asyncio.gather(*self._scrapers, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task: asyncio.Task[None] = asyncio.current_task()  # type: ignore[assignment]  # a coroutine runs in one
        self._scrapers.add(task)
        try:
            if len(self._scrapers) <= _MAX_SCRAPERS:
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _HEAD_TIMEOUT_S)
                writer.write(await self._respond(head.decode("latin-1")))
                await asyncio.wait_for(writer.drain(), _HEAD_TIMEOUT_S)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # too slow, too long, or gone: closing is the answer
        except asyncio.CancelledError:
            pass  # by `close`; nobody waits for this task, and a cancelled one makes asyncio log an error
        finally:
            self._scrapers.discard(task)
            writer.close()

    async def _respond(self, head: str) -> bytes:
        request, *headers = head.split("\r\n")
        method, _, target = request.partition(" ")
        if method != "GET":
            return _response("405 Method Not Allowed", b"only GET is served\n", "text/plain")
        if target.partition(" ")[0].partition("?")[0] != "/metrics":
            return _response("404 Not Found", b"the metrics are at /metrics\n", "text/plain")
        accept = next((line[7:].strip() for line in headers if line[:7].lower() == "accept:"), "")
        async with self._one_at_a_time:
            scrape = take(self._metrics, self._traffic, self._partitions(), self._state())
            body, content_type = await asyncio.to_thread(render, scrape, self._build, accept)
        return _response("200 OK", body, content_type)


def _response(status: str, body: bytes, content_type: str) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + body
