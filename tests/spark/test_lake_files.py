"""What a lake's sink leaves on local files: rows, names, hours, formats, columns; and what it refuses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.spark.lake import sink as sink_module
from barnabas.spark.lake.commit import LatePolicy
from barnabas.spark.lake.errors import LakeError, ManifestDamaged, WrongSchema
from barnabas.spark.lake.evolution import Evolution
from barnabas.spark.lake.filesystem import HadoopFileSystem
from barnabas.spark.lake.formats import FileFormat
from barnabas.spark.lake.manifest_log import ManifestLog
from barnabas.spark.lake.reading import read_lake
from barnabas.spark.lake.sink import LakeSettings, LakeSink
from barnabas.spark.pipeline.sinks import Batch
from tests.spark.lake_topic import BEGIN_MS, Topic, every_offset, offsets_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NewSink = Callable[..., LakeSink]


@pytest.fixture
def topic(spark: SparkSession) -> Topic:
    return Topic(spark)


@pytest.fixture
def new_sink(spark: SparkSession, topic: Topic, tmp_path: Path) -> NewSink:
    def create(name: str = "lake", **settings: Any) -> LakeSink:
        sink = LakeSink("lake", LakeSettings(str(tmp_path / name), **settings), {}, topic.observe)
        sink.prepare(spark)
        return sink

    return create


def visible(lake: Path) -> dict[str, str]:
    """Digests of the files that a reader of plain directories sees."""
    return {
        str(path.relative_to(lake)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in lake.rglob("*")
        if path.is_file() and not any(part.startswith(("_", ".")) for part in path.relative_to(lake).parts)
    }


def test_a_batch_becomes_files_by_hour_and_offsets_that_are_the_same_in_every_byte_when_loaded_again(
    spark: SparkSession, topic: Topic, new_sink: NewSink, tmp_path: Path
) -> None:
    first, second = new_sink("first"), new_sink("second")
    for sink in (first, second):
        assert sink.done_offsets() is None
        assert sink.write(topic.rows(0, 9), topic.batch(0, 9)).rows == 18
        assert sink.write(topic.rows(0, 9), topic.batch(0, 9)).rows == 0
        assert sink.done_offsets() == {("clicks", 0): 9, ("clicks", 1): 9}
    assert sorted(visible(tmp_path / "first")) == [
        f"date=2023-11-14/hour={hour}/clicks-{partition}-{0:020}-{9:020}.snappy.parquet"
        for hour in (22, 23)
        for partition in (0, 1)
    ]
    assert visible(tmp_path / "first") == visible(tmp_path / "second")
    assert offsets_in(spark.read.parquet(str(tmp_path / "first"))) == every_offset(9)
    assert (tmp_path / "first/date=2023-11-14/hour=22/_SUCCESS").exists()
    assert not list((tmp_path / "first/_staging").glob("[!.]*"))


def test_a_lake_begun_through_hadoop_goes_on_without_and_hadoop_reads_it(
    spark: SparkSession, topic: Topic, new_sink: NewSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sink_module, "open_filesystem", HadoopFileSystem)
        new_sink().write(topic.rows(0, 3), topic.batch(0, 3))
    hour = "date=2023-11-14/hour=22"
    assert (tmp_path / "lake" / hour / "._SUCCESS.crc").exists()
    sink = new_sink()
    sink.write(topic.rows(3, 6), topic.batch(3, 6))
    sink.compact(spark)
    through_hadoop = HadoopFileSystem(spark, str(tmp_path / "lake"))
    state, _ = ManifestLog(through_hadoop).read()
    assert state == sink.lake.state()
    assert json.loads(through_hadoop.read(f"{hour}/_SUCCESS"))["rows"] == 12
    assert offsets_in(spark.read.parquet(str(tmp_path / "lake"))) == every_offset(6)


COLUMNS = (
    "element_at(array('two\\nlines, \"quoted\"', '', NULL, '\\\\'), 1 + CAST(_offset % 4 AS INT)) AS page",
    "timestamp_micros(_offset + 123456) AS at",
    "CAST(_offset AS DECIMAL(9, 2)) / 3 AS price",
)


IN_PROOF = (FileFormat.ORC, FileFormat.JSON)


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


@pytest.mark.parametrize(
    "form", [FileFormat.PARQUET, FileFormat.CSV, *(pytest.param(form, marks=pytest.mark.proof) for form in IN_PROOF)]
)
def test_every_format_is_compacted_to_one_file_an_hour_and_read_back_as_it_was(
    spark: SparkSession, topic: Topic, new_sink: NewSink, tmp_path: Path, form: FileFormat
) -> None:
    sink = new_sink(format=form)
    for start in (0, 3):
        sink.write(topic.rows(start, start + 3, *COLUMNS), topic.batch(start, start + 3))
    expected = rows_of(topic.rows(0, 6, *COLUMNS))
    assert rows_of(read_lake(spark, str(tmp_path / "lake"))) == expected
    assert len(visible(tmp_path / "lake")) == 4
    done = sink.compact(spark)
    assert [(row["files_before"], row["files_after"], row["rows"]) for row in done] == [(4, 1, 12)]
    assert len(visible(tmp_path / "lake")) == 1
    assert rows_of(read_lake(spark, str(tmp_path / "lake"))) == expected
    assert (tmp_path / "lake/date=2023-11-14/hour=22/_SUCCESS").exists()
    assert sink.compact(spark) == []


def test_columns_may_be_added_and_missing_and_a_wrong_type_is_refused_before_anything_is_written(
    spark: SparkSession, topic: Topic, new_sink: NewSink, tmp_path: Path
) -> None:
    sink = new_sink()
    sink.write(topic.rows(0, 1, "1 AS price", "named_struct('a', 1) AS shop"), topic.batch(0, 1))
    sink.write(topic.rows(1, 2, "named_struct('b', 'x', 'a', 2) AS shop", "'new' AS tag"), topic.batch(1, 2))
    before = visible(tmp_path / "lake")
    for column, problem in {
        "'dear' AS price": "column 'price' is string, and integer in the lake",
        "2L AS price": "evolution=widen allows it",
        "1 AS hour": "also the name of a directory",
    }.items():
        with pytest.raises(WrongSchema, match=problem):
            sink.write(topic.rows(2, 3, column), topic.batch(2, 3))
    assert visible(tmp_path / "lake") == before
    widened = new_sink(evolution=Evolution.WIDEN)
    widened.write(topic.rows(2, 3, "3000000000L AS price"), topic.batch(2, 3))
    rows = read_lake(spark, str(tmp_path / "lake")).filter("_partition = 0").orderBy("_offset").collect()
    assert [(row.price, row.tag, row.shop and tuple(row.shop)) for row in rows] == [
        (1, None, (1, None)),
        (None, "new", (2, "x")),
        (3_000_000_000, None, None),
    ]


@pytest.mark.parametrize("late", [LatePolicy.ACCEPT, LatePolicy.ASIDE])
def test_rows_whose_hour_is_complete_go_where_the_policy_says(
    spark: SparkSession, topic: Topic, new_sink: NewSink, tmp_path: Path, late: LatePolicy
) -> None:
    sink = new_sink(late=late, time="at")
    sink.write(topic.rows(0, 2, "_timestamp AS at"), topic.batch(0, 2))
    sink.write(topic.rows(2, 3, f"timestamp_millis({BEGIN_MS}) AS at"), topic.batch(2, 3))
    sink.write(topic.rows(3, 4, "CAST(NULL AS TIMESTAMP) AS at"), topic.batch(3, 4))
    marker = tmp_path / "lake/date=2023-11-14/hour=22/_SUCCESS"
    in_hour = [path for path in visible(tmp_path / "lake") if path.startswith("date=2023-11-14/hour=22/")]
    aside = list((tmp_path / "lake/_late/date=2023-11-14/hour=22").glob("*.parquet"))
    is_aside = late is LatePolicy.ASIDE
    assert (len(in_hour), len(aside)) == ((2, 2) if is_aside else (4, 0))
    assert f'"files": {len(in_hour)}' in marker.read_text()
    assert offsets_in(read_lake(spark, str(tmp_path / "lake"), late=True)) == every_offset(4)
    assert spark.read.parquet(str(tmp_path / "lake")).filter("hour IS NULL").count() == 2


def test_a_batch_that_the_lake_has_in_part_brings_only_what_is_missing(
    spark: SparkSession, topic: Topic, new_sink: NewSink, tmp_path: Path
) -> None:
    sink = new_sink()
    for start in (4, 0):
        sink.write(topic.rows(start, start + 2), topic.batch(start, start + 2), dict.fromkeys(topic.ends, 0))
    assert sink.done_offsets() == {("clicks", 0): 2, ("clicks", 1): 2}
    sink.compact(spark)
    with pytest.raises(LakeError, match=r"the lake has a part of clicks-0 \[0, 6\), and the rows do not tell theirs"):
        sink.write(topic.rows(0, 6).drop("_offset"), topic.batch(0, 6))
    assert sink.write(topic.rows(0, 6), topic.batch(0, 6)).rows == 4
    assert offsets_in(spark.read.parquet(str(tmp_path / "lake"))) == every_offset(6)
    assert sink.done_offsets() == {("clicks", 0): 6, ("clicks", 1): 6}


def test_batches_of_a_stateful_query_are_known_by_their_number(topic: Topic, new_sink: NewSink, tmp_path: Path) -> None:
    sink = new_sink()
    counts = topic.rows(0, 4).groupBy("_timestamp").count()
    assert sink.write(counts, Batch(7, "windows", {}, {})).rows == 4
    assert sink.write(counts, Batch(7, "windows", {}, {})).rows == 0
    assert sink.write(counts, Batch(8, "windows", {}, {})).rows == 4
    assert len(visible(tmp_path / "lake")) >= 2


def test_what_cannot_be_a_lake_is_refused_with_its_cause(
    spark: SparkSession, topic: Topic, new_sink: NewSink, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LakeError, match=r"cannot write file:.*/file/below/_staging/manifest-"):
        new_sink("file/below")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("not ours")
    with pytest.raises(LakeError, match=r"has no manifest, but holds notes.txt"):
        new_sink("other")
    sink = new_sink()
    with pytest.raises(LakeError, match=r"holds parquet by _timestamp.* cannot take orc"):
        new_sink(format=FileFormat.ORC)
    with pytest.raises(WrongSchema, match=r"no column '_timestamp' to tell their hour"):
        sink.write(topic.rows(0, 1).drop("_timestamp"), topic.batch(0, 1))
    with pytest.raises(WrongSchema, match=r"'_timestamp' is string"):
        sink.write(topic.rows(0, 1).selectExpr("'now' AS _timestamp"), topic.batch(0, 1))


def test_a_manifest_cut_in_half_stops_the_load_and_loses_nothing(
    spark: SparkSession, topic: Topic, new_sink: NewSink, tmp_path: Path
) -> None:
    sink = new_sink()
    for end in (1, 2):
        sink.write(topic.rows(end - 1, end), topic.batch(end - 1, end))
    before = visible(tmp_path / "lake")
    newest = sorted((tmp_path / "lake/_manifest").glob("*.json"))[-1]
    whole = newest.read_bytes()
    newest.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ManifestDamaged, match=rf"{newest.name} is cut off.*restore it from a copy, or remove it"):
        new_sink()
    assert visible(tmp_path / "lake") == before

    # Removed, the load goes on before it, and the files of that version are replaced by the same ones.
    newest.unlink()
    again = new_sink()
    assert again.done_offsets() == {("clicks", 0): 1, ("clicks", 1): 1}
    again.write(topic.rows(1, 2), topic.batch(1, 2))
    assert visible(tmp_path / "lake") == before
