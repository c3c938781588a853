"""The sink `delta` in Spark, with Delta's own jars."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.spark.pipeline.delta_sink import DeltaSettings, DeltaSink
from barnabas.spark.pipeline.errors import SinkError
from barnabas.spark.pipeline.sinks import Batch, SinkContext, SinkKind, sink_kind
from tests.peers import delta_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def open_sink(spark: SparkSession, tmp_path: Path) -> Callable[..., DeltaSink]:
    delta_jars()

    def prepared(name: str = "orders", **settings: Any) -> DeltaSink:
        chosen = {"path": str(tmp_path / "orders"), **settings}
        sink = DeltaSink(DeltaSettings(**chosen), SinkContext("shop", name, {}))
        sink.prepare(spark)
        return sink

    return prepared


def by_offsets(number: int, start: int, end: int) -> Batch:
    return Batch(number, "query", {("orders", 0): start}, {("orders", 0): end})


def ids(spark: SparkSession, tmp_path: Path) -> list[int]:
    return sorted(row["id"] for row in spark.read.format("delta").load(str(tmp_path / "orders")).collect())


def test_a_pipeline_finds_the_kind_by_its_name() -> None:
    assert sink_kind("delta") == SinkKind(DeltaSettings, DeltaSink)


def test_batches_arrive_once_with_their_offsets(
    spark: SparkSession, open_sink: Callable[..., DeltaSink], tmp_path: Path
) -> None:
    sink = open_sink(partition_by=("part",))
    assert sink.done_offsets() is None
    rows = spark.range(5).selectExpr("id", "id % 2 AS part", "'t' AS _topic")
    assert sink.write(rows, by_offsets(0, 0, 5)).rows == 5
    assert sink.write(rows, by_offsets(0, 0, 5)).rows == 0
    another = open_sink("another")
    assert another.done_offsets() is None
    assert another.write(rows.where("id < 2"), Batch(0, "stateful", {}, {})).rows == 2
    again = open_sink()
    assert again.done_offsets() == {("orders", 0): 5}
    assert (
        again.write(rows.where("id = 4"), by_offsets(0, 5, 6)).rows == 1
    )  # its state was lost: the numbers begin anew
    assert another.write(rows, Batch(0, "stateful", {}, {})).rows == 0
    assert ids(spark, tmp_path) == [0, 0, 1, 1, 2, 3, 4, 4]
    assert sorted(path.name for path in (tmp_path / "orders").glob("part=*")) == ["part=0", "part=1"]
    with pytest.raises(SinkError, match="another run has moved on"):
        again.write(rows, by_offsets(2, 3, 8))


@pytest.mark.proof
def test_delta_itself_refuses_what_it_has(
    spark: SparkSession, open_sink: Callable[..., DeltaSink], tmp_path: Path
) -> None:
    """Since we looked at the table, another driver may have done the batch."""
    late, other = open_sink(), open_sink()
    other.write(spark.range(3), by_offsets(0, 0, 3))
    late.write(spark.range(3), by_offsets(0, 0, 3))
    assert ids(spark, tmp_path) == [0, 1, 2]


@pytest.mark.proof
def test_rows_of_another_form_are_told_and_added_where_that_is_wanted(
    spark: SparkSession, open_sink: Callable[..., DeltaSink], tmp_path: Path
) -> None:
    sink = open_sink()
    sink.write(spark.range(1), by_offsets(0, 0, 1))
    wider = spark.range(1, 2).selectExpr("id", "'x' AS note")
    with pytest.raises(SinkError, match=r"Delta table .*mismatch.*`merge_schema: true` adds columns"):
        sink.write(wider, by_offsets(1, 1, 2))
    assert sink.done_offsets() == {("orders", 0): 1}
    open_sink(merge_schema=True).write(wider, by_offsets(1, 1, 2))
    assert ids(spark, tmp_path) == [0, 1]


@pytest.mark.proof
def test_a_history_that_has_forgotten_the_place_is_not_guessed_at(
    spark: SparkSession, open_sink: Callable[..., DeltaSink], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_sink().write(spark.range(1), by_offsets(0, 0, 1))
    monkeypatch.setattr(DeltaSink, "_history", lambda _: [("of somebody else", 1)])
    with pytest.raises(SinkError, match="its history no longer tells how far sink 'orders' has come"):
        open_sink()


def test_a_session_without_deltas_jars_is_told_what_it_needs(
    open_sink: Callable[..., DeltaSink], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.spark.pipeline.delta_sink._delta_log", lambda spark: None)
    with pytest.raises(SinkError, match=r"needs Delta's jars .* and its extension: set spark.jars"):
        open_sink()
