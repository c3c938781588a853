"""How far a run is: the numbers, and all who show them."""

from __future__ import annotations

import io
import socket
from pathlib import Path
from urllib.request import urlopen

import pytest
from rich.console import Console

from barnabas.spark.pipeline.audits import with_letters
from barnabas.spark.pipeline.errors import PipelineError
from barnabas.spark.pipeline.progress import MAX_FILES, Meter, Progress, progress_from_json
from barnabas.spark.pipeline.reporters import JsonLines, Reporters, history, prometheus, summary, terminal
from barnabas.spark.pipeline.sinks import Written, WrittenFile
from barnabas.spark.pipeline.status import read_history, status_of
from barnabas.spark.ranges import OffsetRange

ZERO, ONE, TWO = ("clicks", 0), ("clicks", 1), ("clicks", 2)


def told(**more: object) -> list[Progress]:
    """Two batches of a run: 30 of 100 records, then 70 more of 110."""
    meter = Meter("shop", "offsets", started=0.0, first={ZERO: 10, ONE: 0})
    first = {"done": {ZERO: 30, ONE: 10}, "latest": {ZERO: 60, ONE: 50}, "records": 30, "batch_seconds": 2.0}
    second = {"done": {ZERO: 60, ONE: 50}, "latest": {ZERO: 65, ONE: 55}, "records": 70, "batch_seconds": 1.0}
    return [
        meter.progress(now=3.0, wall=1000.0, batch=0, written={"lake": Written(25)}, **first, **more),  # type: ignore[arg-type]
        meter.progress(now=5.0, wall=1002.0, batch=1, written={"lake": Written(70)}, **second, **more),  # type: ignore[arg-type]
    ]


def test_done_to_go_speed_and_time_left_follow_from_the_offsets() -> None:
    first, second = told()
    assert [(each.start, each.done, each.to_go) for each in first.partitions] == [(10, 30, 30), (0, 10, 40)]
    assert (first.lag, first.records_per_second, first.eta_seconds) == (70, 10.0, 7.0)
    assert (second.lag, second.records_per_second, second.eta_seconds) == (10, 20.0, 0.5)


def test_a_line_of_json_is_read_back() -> None:
    out = io.StringIO()
    reporter = Reporters([JsonLines(out)])
    for each in told(watermark="2026-11-01T00:00:00.000Z", state_rows=3, state_bytes=4):
        reporter.report(each)
    lines = out.getvalue().splitlines()
    assert [progress_from_json(line) for line in lines] == told(
        watermark="2026-11-01T00:00:00.000Z", state_rows=3, state_bytes=4
    )


def test_the_terminal_has_a_bar_for_each_partition_and_a_line_for_the_run() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=160)
    with terminal(console) as bars:
        for each in told(dead_letters=2, watermark="2026-11-01T00:00:00.000Z", state_rows=3, state_bytes=4_000_000):
            bars.report(each)
        Reporters([JsonLines(io.StringIO()), bars]).tasks(3, 8)
    text = out.getvalue()
    for part in (
        "clicks-0",
        "clicks-1",
        "50/55",
        "batch 1",
        "20 records/s",
        "lag 10",
        "2 dead letters",
        "state 3 rows",
    ):
        assert part in text
    assert "watermark 2026-11-01" in summary(told(watermark="2026-11-01T00:00:00.000Z")[0])


def test_prometheus_serves_the_numbers_of_the_last_batch() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PipelineError, match="cannot serve metrics"), prometheus("127.0.0.1", port):
            pass
    with prometheus("127.0.0.1", port) as metrics:
        for each in told(watermark="2026-11-01T00:00:00.000Z", state_rows=3, state_bytes=4):
            metrics.report(each)
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    run = 'pipeline="shop",query="offsets"'
    for line in (
        f"barnabas_pipeline_lag_records{{{run}}} 10.0",
        f"barnabas_pipeline_records_total{{{run}}} 100.0",
        f'barnabas_pipeline_to_go_records{{partition="1",{run},topic="clicks"}} 5.0',
        f'barnabas_pipeline_rows_total{{{run},sink="lake"}} 95.0',
        f"barnabas_pipeline_state_rows{{{run}}} 3.0",
        f"barnabas_pipeline_watermark_seconds{{{run}}} 1.7934912e+09",
    ):
        assert line in text


def test_a_history_line_of_an_earlier_version_is_read() -> None:
    line = (
        '{"at":1000.0,"pipeline":"shop","query":"offsets","batch":3,"records":30,"rows":{"lake":25},'
        '"batch_seconds":2.0,"records_per_second":10.0,"eta_seconds":null,"lag":0,"partitions":'
        '[{"topic":"clicks","partition":0,"start":10,"done":40,"latest":40}],"dead_letters":5,"watermark":null,'
        '"state_rows":null,"state_bytes":null}'
    )
    progress = progress_from_json(line)
    assert (progress.batch, progress.began, progress.rows) == (3, 998.0, {"lake": 25})
    assert (progress.ranges, progress.sink_seconds, progress.files) == ((), {}, {})


def test_files_of_a_batch_are_counted_and_a_bounded_number_is_named() -> None:
    files = tuple(WrittenFile(f"file:/lake/{n}", f"2026-11-16T{n % 24:02}", 2, 10) for n in range(240))
    [progress] = [
        Meter("shop", "offsets", 0.0, {}).progress(
            now=1.0,
            wall=2.0,
            batch=0,
            records=480,
            batch_seconds=1.0,
            done={ZERO: 480},
            latest={ZERO: 480},
            written={"lake": Written(480, files), "table": Written(7)},
            ranges=[OffsetRange(*ZERO, 0, 480), OffsetRange(*ONE, 5, 5)],
        )
    ]
    found = progress.files["lake"]
    assert (found.count, found.size_bytes, len(found.first)) == (240, 2400, MAX_FILES)
    assert sum(found.rows_by_hour.values()) == 480
    assert found.rows_by_hour["2026-11-16T05"] == 20
    assert (progress.rows, [*progress.files]) == ({"lake": 480, "table": 7}, ["lake"])
    assert progress.ranges == (OffsetRange(*ZERO, 0, 480),)
    assert progress_from_json(progress.to_json()) == progress


def test_status_adds_up_all_runs_and_sees_what_came_since(tmp_path: Path) -> None:
    file = tmp_path / "progress.jsonl"
    for _ in range(2):
        with history(file) as lines:
            for each in told(dead_letters=1):
                lines.report(each)
    with open(file, "a") as out:
        out.write('{"at": 3, "cut')
    begins = {"lake": {ZERO: 10, ONE: 0}}
    status = status_of("shop", list(read_history(file)), begins, {ZERO: 65, ONE: 155}, is_running=True)
    assert (status.batches, status.rows, status.dead_letters, status.lag) == (4, {"lake": 190}, 4, 110)


def test_what_was_never_read_is_all_lag() -> None:
    latest = {ZERO: 65, ONE: 55, TWO: 7}
    never = status_of("shop", [], {"lake": {ZERO: 10, ONE: 50}}, latest, is_running=False)
    assert [(each.query, each.done, each.lag) for each in never.partitions] == [("lake", 10, 55), ("lake", 50, 5)]
    assert never.lag == 60
    begins = {"lake": {ZERO: 10, ONE: 0, TWO: 3}, "added": {TWO: 0}}
    since = status_of("shop", told(), begins, latest, is_running=False)
    assert [(each.query, each.partition, each.lag) for each in since.partitions] == [
        ("offsets", 0, 5),
        ("offsets", 1, 5),
        ("offsets", 2, 4),
        ("added", 2, 7),
    ]
    assert since.lag == 14


def test_an_audit_counts_dead_letters_in() -> None:
    row = {"topic": "clicks", "partition": 0, "hour": "2026-11-16T10", "in_topic": 5, "in_lake": 3, "ok": False}
    place = ("clicks", 0, "2026-11-16T10")
    assert with_letters([row], {place: 2}) == [{**row, "dead_letters": 2, "ok": True}]
    assert with_letters([row], {place: 1}) == [{**row, "dead_letters": 1, "ok": False}]
    assert with_letters([row], {}) == [{**row, "dead_letters": 0}]
    whole = {**row, "hour": "all"}
    assert with_letters([whole], {place: 1, ("clicks", 0, "2026-11-16T11"): 1})[0]["ok"]
