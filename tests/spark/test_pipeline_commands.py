"""The commands on pipelines: from one YAML file to rows, plan, status, report, and back again from dead letters."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from urllib.request import urlopen

import psutil
import pytest
import yaml
from typer.testing import CliRunner, Result

from barnabas.cli.pipeline import app
from barnabas.spark.class_archive import RECORDER
from barnabas.spark.pipeline import session
from barnabas.sync import Admin
from tests.peers import Broker, eventually, free_port
from tests.spark.pipelines import Bench
from tests.spark.quick import QUICK_SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLICKS = """\
name: clicks
cluster: {{bootstrap_servers: "{address}"}}
mode: {mode}
trigger: 200 ms
max_records_per_batch: 20
state: {place}/state
sources:
  - name: clicks
    topics: [{topic}]
    schema: id INT NOT NULL, at TIMESTAMP
sinks:
  - name: lake
    kind: lake
    from: clicks
    path: {place}/lake
    time: at
dead_letters: {{topic: {topic}.dead}}
"""


@pytest.fixture
def bench(spark: SparkSession, spark_broker: Broker, tmp_path: Path) -> Bench:
    return Bench(spark, spark_broker.address, tmp_path)


@pytest.fixture
def pipeline(bench: Bench, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs `barnabas pipeline ...` with the session that is there."""

    @contextmanager
    def shared(*_: object, **__: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(session, "spark_session", shared)
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


def write_file(bench: Bench, topic: str, mode: str = "available-now") -> Path:
    file = bench.place / "clicks.yaml"
    file.write_text(CLICKS.format(address=bench.address, place=bench.place, topic=topic, mode=mode))
    return file


def click(number: int) -> dict[str, Any]:
    return {"id": number, "at": f"2023-11-16T1{number % 2}:00:00Z"}


def lake_ids(bench: Bench) -> list[int]:
    return sorted(row.id for row in bench.spark.read.parquet(str(bench.place / "lake")).collect())


def lake_files(bench: Bench) -> list[Path]:
    return [*(bench.place / "lake").glob("date=*/hour=*/*.parquet")]


def printed(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_pipeline_is_planned_run_told_audited_and_compacted(
    bench: Bench, pipeline: Callable[..., Result], spark_topic: Callable[..., str]
) -> None:
    topic = spark_topic()
    file = write_file(bench, topic)
    bench.send(topic, [click(number) for number in range(24)] + [b"torn"])
    assert printed(pipeline("status", file, "-o", "json"))["lag"] == 25
    plan = printed(pipeline("plan", file, "-o", "json"))
    assert [(each["sink"], each["fed_by"], each["to_read"]) for each in plan["sinks"]] == [
        ("lake", "offsets", 25),
        ("dead-letters", "offsets", 25),
    ]
    assert [(each["path"], each["reason"]) for each in plan["sinks"]] == [
        ("direct", "tasks decode and write with Arrow"),
        ("spark", "bad records are sent by Spark"),
    ]
    assert [(each["batch"], each["from"], each["to"]) for each in plan["batches"]] == [(0, 0, 20), (1, 20, 25)]
    ran = pipeline("run", file, "--progress", "json", "--json", bench.place / "more.jsonl", "-o", "json")
    assert printed(ran)["rows"] == {"dead-letters": 1, "lake": 24}
    told = [json.loads(line) for line in ran.stderr.splitlines()]
    assert [(each["batch"], each["lag"]) for each in told] == [(0, 5), (1, 0)]
    assert [json.loads(line) for line in (bench.place / "more.jsonl").read_text().splitlines()] == told
    report = (bench.place / "state" / "report.html").read_text()
    for part in ("Throughput, records/s", "Rows per hour: lake", "Slowest batches", "decode and write with Arrow"):
        assert part in report
    assert "JSONDecodeError: Expecting value: line N column N (char N)" in report
    links = re.findall('href="([^"]+)"', report)
    assert {(bench.place / "state" / unquote(link)).resolve() for link in links} == set(lake_files(bench))
    audit = printed(pipeline("audit", file, "-o", "json"))
    assert [(row["in_topic"], row["in_lake"], row["dead_letters"], row["ok"]) for row in audit] == [(25, 24, 1, True)]
    assert len(lake_files(bench)) == 4
    compacted = printed(pipeline("compact", file, "-o", "json"))
    assert [(row["files_before"], row["files_after"], row["rows"]) for row in compacted] == [(2, 1, 12), (2, 1, 12)]
    assert len(lake_files(bench)) == 2
    with Admin(bench.address) as admin:
        admin.partitions.create(topic, 2)
    bench.send(topic, [click(24)])
    status = printed(pipeline("status", file, "-o", "json"))
    assert (status["lag"], status["batches"], status["rows"]["lake"], status["is_running"]) == (1, 2, 24, False)
    assert [each["partition"] for each in status["partitions"]] == [0, 1]
    assert "clicks  stopped  lag 1" in pipeline("status", file).stdout
    assert lake_ids(bench) == [*range(24)]


MORE = """\
  - {{name: table, kind: database, from: clicks, url: {place}/table.db, table: clicks, create: true}}
  - {{name: topic, kind: topic, from: clicks, topic: {topic}.out, create: true}}
dead_letters"""


def test_a_plan_only_looks(bench: Bench, pipeline: Callable[..., Result], spark_topic: Callable[..., str]) -> None:
    topic = spark_topic()
    file = write_file(bench, topic)
    text = file.read_text().replace("  - name: clicks\n", "  - name: clicks\n    start: latest\n", 1)
    file.write_text(text.replace("dead_letters", MORE.format(place=bench.place, topic=topic)))

    def planned() -> dict[str, int]:
        return {each["sink"]: each["to_read"] for each in printed(pipeline("plan", file, "-o", "json"))["sinks"]}

    bench.send(topic, [click(number) for number in range(5)])
    with Admin(bench.address) as admin:
        before = {found.name for found in admin.topics.list()}
        assert planned() == dict.fromkeys(("dead-letters", "lake", "table", "topic"), 0)
        assert {found.name for found in admin.topics.list()} == before
    assert [path for path in bench.place.rglob("*") if path.is_file()] == [file]
    bench.send(topic, [click(5)])
    assert printed(pipeline("run", file, "-o", "json"))["records"] == 0
    bench.send(topic, [click(6), click(7)])
    assert set(planned().values()) == {2}
    assert printed(pipeline("run", file, "-o", "json"))["records"] == 2
    bench.send(topic, [click(8)])
    assert set(planned().values()) == {1}


def test_late_rows_are_dropped_and_counted_by_the_audit(
    bench: Bench, pipeline: Callable[..., Result], spark_topic: Callable[..., str]
) -> None:
    topic = spark_topic()
    file = write_file(bench, topic)
    file.write_text(file.read_text().replace("    time: at\n", "    time: at\n    late: drop\n"))
    bench.send(topic, [click(0), click(1)])
    pipeline("run", file)
    bench.send(topic, [click(2), {"id": 3, "at": "2126-11-16T10:00:00Z"}])
    assert pipeline("run", file).exit_code == 0
    assert lake_ids(bench) == [0, 1, 3]
    audit = printed(pipeline("audit", file, "-o", "json"))
    assert [(row["hour"], row["in_topic"], row["in_lake"], row["ok"], row["note"]) for row in audit if row["note"]] == [
        ("all", 4, 3, True, "1 late rows were dropped")
    ]
    assert all(row["ok"] for row in audit)


def test_dead_letters_go_round_again(
    bench: Bench, pipeline: Callable[..., Result], spark_topic: Callable[..., str]
) -> None:
    topic = spark_topic()
    file = write_file(bench, topic)
    bench.send(topic, [click(0), {"id": "7"}, {"id": None}], key=b"k")
    pipeline("run", file)
    listed = printed(pipeline("replay", file, "--dry-run", "-o", "json"))
    assert [(each["topic"], each["offset"]) for each in listed] == [(topic, 1), (topic, 2)]
    file.write_text(file.read_text().replace("id INT NOT NULL", "id STRING"))
    assert printed(pipeline("replay", file, "-o", "json")) == [{"topic": topic, "sent": 2}]
    assert printed(pipeline("replay", file, "-o", "json")) == []
    again = bench.records(topic)[3:]
    assert [(bytes(record.key), json.loads(record.value)) for record in again] == [
        (b"k", {"id": "7"}),
        (b"k", {"id": None}),
    ]
    assert [[header.key for header in record.headers] for record in again] == [["barnabas.replays"]] * 2


def test_a_backfill_loads_a_span_of_time_once(
    bench: Bench, pipeline: Callable[..., Result], spark_topic: Callable[..., str]
) -> None:
    topic = spark_topic()
    file = write_file(bench, topic)
    text = file.read_text().replace("  - name: clicks\n", "  - name: clicks\n    start: latest\n", 1)
    table = (
        f"  - {{name: table, kind: database, from: clicks, url: {bench.place}/table.db, table: clicks, create: true}}\n"
    )
    file.write_text(text.replace("dead_letters", f"{table}dead_letters"))
    bench.send(topic, [click(0), click(1), b"torn", click(2), click(3)])
    pipeline("run", file)
    bench.send(topic, [click(4)])
    assert printed(pipeline("run", file, "-o", "json"))["rows"] == {"dead-letters": 0, "lake": 1, "table": 1}

    def backfill(first: str) -> dict[str, int]:
        rows = printed(pipeline("backfill", file, "--from", first, "--to", "2120-01-01", "-o", "json"))["rows"]
        assert isinstance(rows, dict)
        return rows

    assert backfill("2020-01-01") == {"dead-letters": 1, "lake": 4, "table": 5}
    bench.send(topic, [click(5)])  # which is in the span, and came after the backfill
    assert backfill("2020-01-01") == {"dead-letters": 0, "lake": 0, "table": 0}
    assert backfill("2020-01-02") == {"dead-letters": 1, "lake": 1, "table": 6}
    assert lake_ids(bench) == [*range(6)]
    audit = printed(pipeline("audit", file, "-o", "json"))
    assert [(row["in_topic"], row["in_lake"], row["dead_letters"], row["ok"]) for row in audit] == [(7, 6, 1, True)]
    assert {each["offset"] for each in printed(pipeline("replay", file, "--dry-run", "-o", "json"))} == {2}
    assert "holds nothing" in pipeline("backfill", file, "--from", "2026-01-02", "--to", "2026-01-01").stderr


def test_a_wrong_file_is_one_line_on_standard_error(tmp_path: Path) -> None:
    file = tmp_path / "clicks.yaml"
    file.write_text("name: clicks\nsorces: []\n")
    result = CliRunner().invoke(app, ["validate", str(file)])
    assert result.exit_code == 1
    assert result.stderr == f"barnabas: {file}:2: a pipeline has no key 'sorces'; did you mean 'sources'?\n"


def wait_for_classes(cache: Path) -> None:
    """Until the process in the background has left nothing but the archive; at this priority, if that is allowed."""
    for process in psutil.process_iter(["cmdline", "environ"]):
        is_ours = (process.info["environ"] or {}).get("XDG_CACHE_HOME") == str(cache)
        if is_ours and RECORDER in (process.info["cmdline"] or ()):
            with suppress(psutil.Error):
                process.nice(psutil.Process().nice())
    eventually(lambda: [path.suffix for path in (cache / "barnabas").iterdir()], [".jsa"], timeout=400)


@pytest.mark.timeout(600)
def test_a_run_is_announced_and_summed_up_and_later_ones_start_from_its_classes(
    bench: Bench, spark_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = spark_topic()
    bench.send(topic, [click(1)])
    file = write_file(bench, topic)
    text = file.read_text()
    cache = tmp_path / "cache"
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    java_options = QUICK_SPARK["spark.driver.extraJavaOptions"]
    archive_in_background = "later runs start faster: Spark's classes are being archived, once, in the background"
    for is_first, options in ((True, java_options), (False, f"{java_options} -Xshare:on")):
        # -Xshare:on is an error where the archive does not fit
        settings = {**QUICK_SPARK, "spark.driver.extraJavaOptions": options}
        file.write_text(text + yaml.safe_dump({"spark": settings}))
        command = [sys.executable, "-m", "barnabas.cli", "pipeline", "run", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        first, *_ = done.stderr.splitlines()
        work = r"1 record \(about \d+ B\) of 1 partition to read in 1 task, directly with Arrow"
        assert re.fullmatch(rf"clicks: ({work}|nothing new to read); starting Spark", first)
        assert re.fullmatch(r"pipeline clicks: (1 record|0 records) in .* \(\d steps?\), .*; report: .*\n", done.stdout)
        assert (archive_in_background in done.stderr) == is_first
        if is_first:
            wait_for_classes(cache)
        (archive,) = (cache / "barnabas").iterdir()
        assert archive.suffix == ".jsa"
    archive.unlink()  # 170 MB, and pytest keeps the directories of several runs
    assert lake_ids(bench) == [1]


@pytest.mark.proof
def test_ctrl_c_stops_between_commits_and_a_second_run_is_refused(
    bench: Bench, pipeline: Callable[..., Result], spark_topic: Callable[..., str]
) -> None:
    topic = spark_topic()
    file = write_file(bench, topic, mode="micro-batch")
    with file.open("a") as more:
        yaml.safe_dump({"spark": QUICK_SPARK}, more)
    bench.send(topic, [click(number) for number in range(30)])
    port = free_port()
    command = [sys.executable, "-m", "barnabas.cli", "pipeline", "run", str(file), "--metrics", str(port), "-o", "json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as running:
        try:
            assert running.stderr is not None
            told = [*itertools.takewhile(lambda line: not line.startswith("clicks: batch 0"), running.stderr)]
            assert running.poll() is None, "".join(told)
            assert "is run already, by process" in pipeline("run", file).stderr
            span = ("--from", "2020-01-01", "--to", "2120-01-01")
            assert "pipeline 'clicks' is run already, by process" in pipeline("backfill", file, *span).stderr
            assert printed(pipeline("status", file, "-o", "json"))["is_running"]
            eventually(lambda: _is_served(port), True, timeout=120)
            assert pipeline("plan", file).exit_code == 0
            os.killpg(running.pid, signal.SIGINT)  # as a terminal does it: to Java, and to Spark's Python processes too
            out, err = running.communicate(timeout=200)
        finally:
            running.kill()
    assert running.returncode == 0, err
    rows = json.loads(out)["rows"]["lake"]
    assert rows in (20, 30)
    assert lake_ids(bench) == [*range(rows)]


def _is_served(port: int) -> bool:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return "barnabas_pipeline_lag_records" in answer.read().decode()
