"""What Spark does with a Python stream writer, documented or not, as far as exactly-once writes depend on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource


def recording_source() -> type[DataSource]:
    """A sink that writes down each call of Spark's. It is made here so that Spark carries its code to the tasks."""
    import json
    import os

    from pyspark import TaskContext
    from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage

    class Told(WriterCommitMessage):
        def __init__(self, batch: str | None, query: str | None) -> None:
            self.batch = batch
            self.query = query

    class Recorder(DataSource):
        @classmethod
        def name(cls) -> str:
            return "recorder"

        def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
            return Writer(self.options["path"], self.options.get("fails_at"))

    class Writer(DataSourceStreamWriter):
        def __init__(self, path: str, fails_at: str | None) -> None:
            self._path = path
            self._fails_at = fails_at
            self._made_by = os.getpid()
            is_task = TaskContext.get() is not None
            self._record("made", is_task=is_task)

        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            values = [row.value for row in iterator]
            context = TaskContext.get()
            assert context is not None
            found = {
                name: context.getLocalProperty(name) for name in ("streaming.sql.batchId", "sql.streaming.queryId")
            }
            self._record("write", values=values, was_carried=os.getpid() != self._made_by, **found)
            return Told(*found.values())

        def commit(self, messages: list[Any], batchId: int) -> None:
            told = sorted({(message.batch, message.query) for message in messages})
            self._record("commit", batch=batchId, told=told)
            if str(batchId) == self._fails_at:
                raise RuntimeError("this commit fails")

        def abort(self, messages: list[Any], batchId: int) -> None:
            self._record("abort", batch=batchId)

        def _record(self, call: str, **what: object) -> None:
            with open(self._path, "a") as file:
                file.write(json.dumps({"call": call, **what}) + "\n")

    return Recorder


class Calls:
    """A stream of text files into the recording sink, and what the sink has written down."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._directory = directory
        self._files = directory / "files"
        self._record = directory / "calls"
        self._files.mkdir()
        spark.dataSource.register(recording_source())

    def add(self, value: str) -> None:
        hidden = self._directory / value
        hidden.write_text(f"{value}\n")
        hidden.rename(self._files / f"{value}.txt")

    def run(self, fails_at: int | None = None) -> str:
        """Run until all files are read, or the sink fails; the id of the query."""
        from pyspark.errors import StreamingQueryException

        self._record.write_text("")
        lines = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._files))
        writer = lines.coalesce(1).writeStream.format("recorder").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(self._directory / "checkpoint"))
        if fails_at is not None:
            writer = writer.option("fails_at", fails_at)
        query = writer.option("path", str(self._record)).start()
        if fails_at is None:
            assert query.awaitTermination(300)
        else:
            with pytest.raises(StreamingQueryException, match="this commit fails"):
                query.awaitTermination(300)
        return str(query.id)

    def told(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._record.read_text().splitlines()]


@pytest.fixture
def calls(spark: SparkSession, tmp_path: Path) -> Calls:
    return Calls(spark, tmp_path)


def test_tasks_find_the_batch_and_the_query_and_get_the_writer_that_the_driver_made(calls: Calls) -> None:
    for value in ("one", "two"):
        calls.add(value)
    query = calls.run()
    told = calls.told()
    assert [each["call"] for each in told] == ["made", "write", "made", "commit"] * 2
    assert not any(each["is_task"] for each in told if each["call"] == "made")
    writes = [each for each in told if each["call"] == "write"]
    assert sorted(value for each in writes for value in each["values"]) == ["one", "two"]
    assert all(each["was_carried"] for each in writes)
    for number, write in enumerate(writes):
        assert write["streaming.sql.batchId"] == str(number)
        assert write["sql.streaming.queryId"] == query
    commits = [(each["batch"], each["told"]) for each in told if each["call"] == "commit"]
    assert commits == [(number, [[str(number), query]]) for number in range(2)]


def test_a_batch_whose_commit_did_not_end_is_written_and_committed_again(calls: Calls) -> None:
    calls.add("one")
    first = calls.run(fails_at=0)
    assert [each["call"] for each in calls.told()][:4] == ["made", "write", "made", "commit"]
    calls.add("two")
    again = calls.run()
    told = calls.told()
    assert again == first
    assert [each["call"] for each in told] == ["made", "write", "made", "commit"] * 2
    assert [each["values"] for each in told if each["call"] == "write"] == [["one"], ["two"]]
    assert [each["batch"] for each in told if each["call"] == "commit"] == [0, 1]
