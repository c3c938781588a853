"""The commands on pipelines: from one YAML file to rows, plan, status, report, and back again from dead letters."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
import yaml
from typer.testing import CliRunner, Result

from barnabas.cli.pipeline import app
from barnabas.spark.pipeline import session
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
    def shared(*_: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(session, "spark_session", shared)
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


def write_file(bench: Bench, topic: str, mode: str = "available-now") -> Path:
    file = bench.place / "clicks.yaml"
    file.write_text(CLICKS.format(address=bench.address, place=bench.place, topic=topic, mode=mode))
    return file


def click(number: int) -> dict[str, Any]:
    return {"id": number, "at": f"2026-11-16T1{number % 2}:00:00Z"}


def lake_ids(bench: Bench) -> list[int]:
    return sorted(row.id for row in bench.spark.read.parquet(str(bench.place / "lake")).collect())


def printed(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_pipeline_is_planned_run_told_audited_and_compacted(
    bench: Bench, pipeline: Callable[..., Result], spark_topic: Callable[..., str]
) -> None:
    topic = spark_topic()
    file = write_file(bench, topic)
    bench.send(topic, [click(number) for number in range(24)] + [b"torn"])
    plan = printed(pipeline("plan", file, "-o", "json"))
    assert [(each["sink"], each["fed_by"], each["to_read"]) for each in plan["sinks"]] == [
        ("dead-letters", "offsets", 25),
        ("lake", "offsets", 25),
    ]
    assert [(each["batch"], each["from"], each["to"]) for each in plan["batches"]] == [(0, 0, 20), (1, 20, 25)]
    ran = pipeline("run", file, "--progress", "json", "--json", bench.place / "more.jsonl", "-o", "json")
    assert printed(ran)["rows"] == {"dead-letters": 1, "lake": 24}
    told = [json.loads(line) for line in ran.stderr.splitlines()]
    assert [(each["batch"], each["lag"]) for each in told] == [(0, 5), (1, 0)]
    assert [json.loads(line) for line in (bench.place / "more.jsonl").read_text().splitlines()] == told
    assert "<svg" in (bench.place / "state" / "report.html").read_text()
    audit = printed(pipeline("audit", file, "-o", "json"))
    assert [(row["in_topic"], row["in_lake"], row["dead_letters"], row["ok"]) for row in audit] == [(25, 24, 1, True)]
    assert pipeline("compact", file).exit_code == 0
    bench.send(topic, [click(24)])
    status = printed(pipeline("status", file, "-o", "json"))
    assert (status["lag"], status["batches"], status["rows"]["lake"], status["is_running"]) == (1, 2, 24, False)
    assert "clicks  stopped  lag 1" in pipeline("status", file).stdout
    assert lake_ids(bench) == [*range(24)]


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
    file.write_text(file.read_text().replace("  - name: clicks\n", "  - name: clicks\n    start: latest\n", 1))
    bench.send(topic, [click(number) for number in range(4)])
    pipeline("run", file)
    bench.send(topic, [click(4)])
    assert printed(pipeline("run", file, "-o", "json"))["rows"]["lake"] == 1
    span = ("--from", "2020-01-01", "--to", "2120-01-01")
    assert printed(pipeline("backfill", file, *span, "-o", "json"))["rows"]["lake"] == 4
    assert printed(pipeline("backfill", file, *span, "-o", "json"))["rows"]["lake"] == 0
    assert lake_ids(bench) == [*range(5)]
    assert "holds nothing" in pipeline("backfill", file, "--from", "2026-01-02", "--to", "2026-01-01").stderr


def test_a_wrong_file_is_one_line_on_standard_error(tmp_path: Path) -> None:
    file = tmp_path / "clicks.yaml"
    file.write_text("name: clicks\nsorces: []\n")
    result = CliRunner().invoke(app, ["validate", str(file)])
    assert result.exit_code == 1
    assert result.stderr == f"barnabas: {file}:2: a pipeline has no key 'sorces'; did you mean 'sources'?\n"


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
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stderr is not None
            told = [*itertools.takewhile(lambda line: not line.startswith("clicks: batch 0"), running.stderr)]
            assert running.poll() is None, "".join(told)
            assert "is run already, by process" in pipeline("run", file).stderr
            assert printed(pipeline("status", file, "-o", "json"))["is_running"]
            eventually(lambda: _is_served(port), True, timeout=120)
            running.send_signal(signal.SIGINT)
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
