"""Files by hour: every row in the file of its hour, in its order, within the bounds on memory and open files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from threading import Barrier

import pyarrow
import pyarrow.parquet
import pytest

from barnabas.spark.direct import hour_files
from barnabas.spark.direct.hour_files import (
    HourFiles,
    HourFilesTarget,
    WrittenFile,
    by_hour,
    codec_of,
    hours_of,
    repetitive,
)
from barnabas.spark.lake.task_files import LocalTaskFiles

TIME = pyarrow.timestamp("us", "UTC")
SCHEMA = pyarrow.schema([("at", TIME), ("_offset", pyarrow.int64()), ("text", pyarrow.string())])
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rows(times: Sequence[datetime | None], first: int = 0) -> pyarrow.RecordBatch:
    count = len(times)
    arrays = [
        pyarrow.array(times, TIME), pyarrow.array(range(first, first + count), pyarrow.int64()),
        pyarrow.array(["x" * 10] * count),
    ]  # fmt: skip
    return pyarrow.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def write(directory: Path, batches: list[pyarrow.RecordBatch], max_rows: int = 0) -> list[WrittenFile]:
    def place(hour: int | None, number: int, suffix: str) -> str:
        return f"{directory}/{hour}/{number:05}{suffix}"

    files = HourFiles(LocalTaskFiles(str(directory)), place, SCHEMA, "at", max_rows_per_file=max_rows)
    for batch in batches:
        files.add(batch)
    return files.finish()


def read(files: list[WrittenFile], hour: int | None) -> list[int]:
    chosen = sorted((file for file in files if file.hour == hour), key=lambda file: file.number)
    return [offset for file in chosen for offset in pyarrow.parquet.read_table(file.path)["_offset"].to_pylist()]


def test_rows_go_to_the_file_of_their_hour_in_their_order(tmp_path: Path) -> None:
    random = Random(1)
    moments = [EPOCH + timedelta(hours=random.randrange(-3, 4), minutes=index % 60) for index in range(5_000)]
    files = write(tmp_path, [rows(moments[start : start + 700], start) for start in range(0, 5_000, 700)])
    assert sorted(file.hour or 0 for file in files) == list(range(-3, 4))
    for hour in range(-3, 4):
        assert read(files, hour) == [
            index for index, at in enumerate(moments) if (at - EPOCH) // timedelta(hours=1) == hour
        ]
    for file in files:
        assert file.size == Path(file.path).stat().st_size
        assert file.latest_ms is not None
        assert file.latest_ms // 3_600_000 == file.hour


def test_rows_without_a_time_that_a_calendar_has_go_together(tmp_path: Path) -> None:
    files = write(tmp_path, [rows([None, datetime(1, 1, 1, tzinfo=UTC), EPOCH, None])])
    assert read(files, None) == [0, 1, 3]
    assert read(files, 0) == [2]


def test_ten_thousand_hours_keep_few_files_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(2)
    moments = [EPOCH + timedelta(hours=random.randrange(10_000)) for _ in range(12_000)]
    most = 0
    close = HourFiles._close

    def closing(self: HourFiles, hour: int | None) -> None:
        nonlocal most
        most = max(most, len(self._open))
        close(self, hour)

    monkeypatch.setattr(HourFiles, "_close", closing)
    files = write(tmp_path, [rows(moments[start : start + 4_000], start) for start in range(0, 12_000, 4_000)])
    assert most == hour_files.MOST_OPEN_FILES
    assert sum(file.rows for file in files) == 12_000
    assert len(files) == len(set(moments))


def test_memory_is_bounded_whatever_the_hours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hour_files, "SPLIT_BYTES", 10_000)
    monkeypatch.setattr(hour_files, "MOST_BYTES", 50_000)
    monkeypatch.setattr(hour_files, "ROW_GROUP_BYTES", 20_000)
    held = []
    split = HourFiles._split

    def splitting(self: HourFiles) -> None:
        split(self)
        held.append(self._held_bytes)

    monkeypatch.setattr(HourFiles, "_split", splitting)
    moments = [EPOCH + timedelta(hours=index % 40) for index in range(20_000)]
    files = write(tmp_path, [rows(moments[start : start + 500], start) for start in range(0, 20_000, 500)])
    assert max(held) <= 50_000
    assert sorted(offset for hour in range(40) for offset in read(files, hour)) == list(range(20_000))


def test_a_file_takes_no_more_rows_than_allowed(tmp_path: Path) -> None:
    files = write(tmp_path, [rows([EPOCH] * 10), rows([EPOCH] * 15, 10)], max_rows=10)
    assert [file.rows for file in files] == [10, 10, 5]
    assert read(files, 0) == list(range(25))


class Slow:
    """A file that does what is asked when it is closed."""

    def __init__(self, on_close: Callable[[], object]) -> None:
        self.closed = False
        self._on_close = on_close

    def write(self, data: bytes) -> int:
        return len(data)

    def close(self) -> None:
        self.closed = True
        self._on_close()


@dataclass(frozen=True)
class SlowFiles:
    """Files that cannot be read."""

    on_close: Callable[[], object]
    root: str = "/"

    def create(self, path: str) -> pyarrow.NativeFile:
        return pyarrow.PythonFile(Slow(self.on_close), mode="w")

    def open(self, path: str) -> pyarrow.NativeFile:
        raise NotImplementedError


def test_files_are_closed_at_the_same_time() -> None:
    together = Barrier(5)
    target = HourFilesTarget(SlowFiles(lambda: together.wait(60)), "/x", SCHEMA, "at", "snappy", 0)
    with target.writer(0, 0, None) as writer:
        writer.add(rows([EPOCH + timedelta(hours=hour) for hour in range(5)]))
    assert [file["rows"] for file in writer.written()] == [1] * 5


def test_a_file_that_cannot_be_closed_fails_the_task() -> None:
    def fail() -> None:
        raise OSError("no data node")

    target = HourFilesTarget(SlowFiles(fail), "/x", SCHEMA, "at", "snappy", 0)
    with pytest.raises(OSError, match="no data node"), target.writer(0, 0, None) as writer:
        writer.add(rows([EPOCH]))


def test_the_error_of_a_task_is_not_hidden_by_files_that_cannot_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError("no data node")

    monkeypatch.setattr(hour_files, "SPLIT_BYTES", 1)
    monkeypatch.setattr(hour_files, "ROW_GROUP_BYTES", 1)
    target = HourFilesTarget(SlowFiles(fail), "/x", SCHEMA, "at", "snappy", 0)

    def task() -> None:
        with target.writer(0, 0, None) as writer:
            writer.add(rows([EPOCH]))
            raise ValueError("bad record")

    with pytest.raises(ValueError, match="bad record"):
        task()


def test_hours_are_rounded_down_before_1970_too() -> None:
    moments = [EPOCH - timedelta(microseconds=1), EPOCH, EPOCH + timedelta(hours=1, microseconds=-1)]
    assert hours_of(pyarrow.chunked_array([pyarrow.array(moments, TIME)])).to_pylist() == [-1, 0, 0]


def test_rows_of_one_hour_are_not_copied() -> None:
    table = pyarrow.Table.from_batches([rows([EPOCH] * 3)])
    ((hour, found),) = by_hour(table, "at")
    assert (hour, found is table) == (0, True)


def test_only_columns_that_repeat_get_a_dictionary() -> None:
    table = pyarrow.Table.from_batches([rows([EPOCH] * 100)])
    assert repetitive(table) == ["at", "text"]


@pytest.mark.parametrize(("options", "codec"), [({}, "snappy"), ({"Compression": "ZSTD"}, "zstd")])
def test_codec_of_options(options: dict[str, str], codec: str) -> None:
    assert codec_of(options) == codec


@pytest.mark.parametrize("options", [{"compression": "lzo"}, {"parquet.block.size": "1"}])
def test_options_for_sparks_writer_have_no_codec(options: dict[str, str]) -> None:
    with pytest.raises(KeyError):
        codec_of(options)
