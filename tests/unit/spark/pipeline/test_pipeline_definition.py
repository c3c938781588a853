"""A pipeline's file: what it may say, and errors that give the line and the nearest right word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace

import pytest

from barnabas.spark.pipeline import sinks
from barnabas.spark.pipeline.definition import Format, Mode, Pipeline
from barnabas.spark.pipeline.definition_file import load_pipeline, parse_pipeline
from barnabas.spark.pipeline.errors import PipelineError
from barnabas.spark.pipeline.sinks import Sink, SinkContext, SinkKind
from barnabas.spark.pipeline.yaml_nodes import DefinitionError, Misfit


class Shape(StrEnum):
    ROUND = "round"
    SQUARE = "square"


@dataclass(frozen=True, slots=True)
class BoxSettings:
    path: str
    shape: Shape = Shape.ROUND
    size: int | None = None
    share: float = 0.5
    tags: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.size == 0:
            raise Misfit("a box of size 0 holds nothing", "size")
        if self.path == "":
            raise ValueError("a box needs a path")


def open_box(settings: BoxSettings, context: SinkContext) -> Sink:
    raise AssertionError("nothing is opened while a file is read")


@pytest.fixture(autouse=True)
def _boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {"box": "tests.box", "basket": "tests.basket"}
    monkeypatch.setattr(sinks, "SINK_KINDS", kinds)
    monkeypatch.setattr("barnabas.spark.pipeline.definition_file.SINK_KINDS", kinds)
    monkeypatch.setattr(sinks, "import_module", lambda name: SimpleNamespace(KIND=SinkKind(BoxSettings, open_box)))


WHOLE = """\
name: clicks
cluster:
  bootstrap_servers: ${SERVERS:-localhost:9092}
mode: micro-batch
trigger: 5 seconds
max_records_per_batch: 1000
sources:
  - name: clicks
    topics: [clicks, taps]
    start: 2026-11-01T00:00:00Z
    format: json
    schema: user STRING NOT NULL, at TIMESTAMP
    watermark: {column: at, delay: 10 minutes}
  - name: users
    topics: users
    schema: id STRING
    newest_by: [id]
transforms:
  - name: known
    sql: SELECT * FROM clicks JOIN users ON clicks.user = users.id
  - name: counts
    from: known
    window:
      column: at
      size: 1 minute
      group_by: [user]
      aggregate: {clicks: count(*)}
sinks:
  - name: box
    kind: box
    from: counts
    path: /tmp/box
    tags: one
dead_letters:
  topic: clicks.dead
"""


def parse(text: str, **environment: str) -> Pipeline:
    return parse_pipeline(text, "clicks.yaml", environment)


def test_a_whole_file_is_read() -> None:
    pipeline = parse(WHOLE)
    clicks, users = pipeline.sources
    (box,) = pipeline.sinks
    assert pipeline.mode is Mode.MICRO_BATCH
    assert pipeline.trigger_ms == 5000
    assert pipeline.has_watermark("counts")
    assert (clicks.topics, clicks.format, users.is_table) == (("clicks", "taps"), Format.JSON, True)
    assert pipeline.sources_behind("counts") == [clicks, users]
    assert box.settings == BoxSettings("/tmp/box", tags=("one",))
    assert pipeline.cluster.source_options()["kafka.bootstrap.servers"] == "localhost:9092"


def test_a_variable_of_the_environment_wins_over_its_default() -> None:
    assert parse(WHOLE, SERVERS="far:9092").cluster.bootstrap_servers == "far:9092"


def test_sql_reads_the_views_that_it_names() -> None:
    pipeline = parse(WHOLE.replace(" JOIN users ON clicks.user = users.id", ""))
    assert [source.name for source in pipeline.sources_behind("known")] == ["clicks"]


@pytest.mark.parametrize(
    ("right", "wrong", "line", "message"),
    [
        ("topics: [clicks", "topic: [clicks", 9, "has no key 'topic'; did you mean 'topics'?"),
        ("mode: micro-batch", "mode: microbatch", 4, "mode cannot be 'microbatch'; did you mean 'micro-batch'?"),
        ("format: json", "format: jsn", 11, "did you mean 'json'?"),
        ("kind: box", "kind: bocks", 30, "there is no sink of kind 'bocks'; did you mean 'box'?"),
        ("    kind: box\n", "", 29, "a sink needs the key 'kind': basket, box"),
        ("path: /tmp/box", "pth: /tmp/box", 32, "a sink of kind box has no key 'pth'; did you mean 'path'?"),
        ("    path: /tmp/box\n", "", 29, "a sink of kind box lacks the key 'path'"),
        ("path: /tmp/box", 'path: ""', 29, "a sink of kind box: a box needs a path"),
        ("tags: one", "size: 0", 33, "a box of size 0 holds nothing"),
        ("tags: one", "size: many", 33, "size is 'many', not a whole number"),
        ("tags: one", "share: true", 33, "share is 'true', not a number"),
        ("tags: one", "tags: {a: b}", 33, "tags is a mapping, not a list"),
        ("tags: one", "shape: rond", 33, "shape cannot be 'rond'; did you mean 'round'?"),
        ("from: counts", "from: count", 31, "there is no view 'count' to read from; did you mean 'counts'?"),
        ("from: known", "from: counts", 22, "there is no view 'counts' to read from"),
        ("name: counts", "name: clicks", 21, "there are two views 'clicks'"),
        ("name: box", "name: dead-letters", 29, "'dead-letters' is the sink of the key dead_letters; use another name"),
        ("format: json", "data_loss: skp", 11, "data_loss cannot be 'skp'; did you mean 'skip'?"),
        ("    newest_by: [id]", "    newest_by: [id]\n    data_loss: skip", 18, "so it loses nothing"),
        ("name: counts", "name: my counts", 21, "cannot be a view in SQL"),
        ("delay: 10 minutes", "delay: 10 minuets", 13, "unknown unit 'minuets'; did you mean 'minutes'?"),
        ("trigger: 5 seconds", "trigger: often", 5, "trigger is 'often', not a time such as '10 minutes'"),
        ("start: 2026-11-01T00:00:00Z", "start: erliest", 10, "start cannot be 'erliest'; did you mean 'earliest'?"),
        ("format: json", "format: text", 12, "format text has no schema"),
        ("    schema: id STRING\n", "", 14, "format json needs a schema"),
        ("    topics: users\n", "", 14, "source 'users' needs either topics or a pattern"),
        ("size: 1 minute", "size: 1 minute\n      gap: 1 minute", 24, "either a size, or the gap"),
        ("from: known", "python: clean", 21, "needs one of sql, python, arrow, window; 2 are given"),
        ("name: clicks\ncluster", "name: a b\ncluster", 1, "name 'a b' has other characters"),
        ("mode: micro-batch", "mode: [batch]", 4, "mode is a list, not a word"),
        ("mode: micro-batch", "mode: batch\nmode: batch", 5, "has the key 'mode' twice"),
        ("trigger: 5 seconds", "trigger: ${OFTEN}", 5, "the environment has no variable 'OFTEN'"),
        ("tags: one", "tags: [one", 34, "not YAML"),
        (
            "topics: users",
            "topics: users\n    watermark: {column: id, delay: 1s}",
            16,
            "a table (newest_by) has no watermark",
        ),
    ],
)
def test_a_mistake_is_told_with_its_line(right: str, wrong: str, line: int, message: str) -> None:
    assert right in WHOLE
    with pytest.raises(DefinitionError) as caught:
        parse(WHOLE.replace(right, wrong, 1))
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"clicks.yaml:{line}: ")


@pytest.mark.parametrize("text", ["", "- a\n", "just text", "\x00"])
def test_a_file_of_another_shape_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError):
        parse(text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"cannot read .*gone\.yaml: No such file"):
        load_pipeline(tmp_path / "gone.yaml")
