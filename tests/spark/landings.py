"""Where the rows of a disturbed pipeline land: how its file names each place, and how a plain reader reads it."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

from barnabas import ConsumerRecord, TopicPartition
from barnabas.spark.database.connections import Database
from barnabas.spark.pipeline.errors import SinkError
from barnabas.sync import Consumer
from tests.peers import DELTA_JARS

Row = tuple[int, str, float]
COLUMNS = ("id", "customer", "amount")


class Landing(Protocol):
    """A sink of its own; made for a directory, whose name tells it from others of its kind."""

    @property
    def settings(self) -> dict[str, Any]:
        """What the pipeline's file says, beside the name and the view."""

    @property
    def spark(self) -> Mapping[str, str]:
        """What Spark needs for it."""

    def rows(self, address: str) -> Counter[Row]:
        """All rows that a reader sees now; the address is the broker's."""


class Lake:
    def __init__(self, directory: Path) -> None:
        self._path = directory / "lake"
        self.settings = {"kind": "lake", "path": str(self._path)}
        self.spark: Mapping[str, str] = {}

    def rows(self, address: str) -> Counter[Row]:
        return _rows_in(_plain_files(self._path))


def _plain_files(path: Path) -> Iterator[Path]:
    """What readers of Hadoop's file systems see: names that begin with `_` or `.` are hidden."""
    for directory, names, files in os.walk(path):
        names[:] = [name for name in names if not name.startswith(("_", "."))]
        yield from (Path(directory, file) for file in files if not file.startswith(("_", ".")))


def _rows_in(files: Iterable[Path]) -> Counter[Row]:
    import pyarrow.parquet

    found: Counter[Row] = Counter()
    for file in files:
        with pyarrow.parquet.ParquetFile(file) as parquet:
            columns = parquet.read(columns=list(COLUMNS)).to_pydict()
        found.update(zip(*(columns[name] for name in COLUMNS)))
    return found


class HdfsLake:
    """Under a directory of HDFS; `copy` brings it to a local one."""

    def __init__(self, directory: Path, url: str, copy: Callable[[str, Path], Path]) -> None:
        self._directory = directory
        self._copy = copy
        self._path = f"{url}/{directory.name}"
        self._copies = 0
        self.settings = {"kind": "lake", "path": self._path}
        self.spark: Mapping[str, str] = {}

    def rows(self, address: str) -> Counter[Row]:
        self._copies += 1
        return _rows_in(_plain_files(self._copy(self._path, self._directory / f"copy-{self._copies}")))


class Table:
    """Of SQLite, unless a server's URL is given."""

    def __init__(self, directory: Path, url: str | None = None) -> None:
        self._database = Database.at(url or str(directory / "shop.db"))
        self._table = f"orders_{directory.name}"
        self.settings = {"kind": "database", "url": self._database.url, "table": self._table, "create": True}
        self.spark: Mapping[str, str] = {}

    def rows(self, address: str) -> Counter[Row]:
        try:
            with self._database.connected() as session:
                return Counter(session.rows(f"SELECT {', '.join(COLUMNS)} FROM {self._table}"))
        except SinkError:  # the table is not there yet
            return Counter()


class Topic:
    def __init__(self, directory: Path) -> None:
        self._topic = f"doubled-{directory.name}"
        self.settings = {"kind": "topic", "topic": self._topic, "key": "customer", "create": True, "partitions": 2}
        self.spark: Mapping[str, str] = {}

    def rows(self, address: str) -> Counter[Row]:
        found: Counter[Row] = Counter()
        for record in committed(address, self._topic, partitions=2):
            order = json.loads(record.value)
            assert record.key == order["customer"].encode()
            found[order["id"], order["customer"], order["amount"]] += 1
        return found


class TopicOfRecords(Topic):
    """Rows have keys and values, which tasks send as they are."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.settings = {"kind": "topic", "topic": self._topic, "format": "columns", "create": True, "partitions": 2}


def committed(address: str, topic: str, partitions: int) -> Iterator[ConsumerRecord]:
    """All records that count now."""
    with Consumer(address, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        places = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(places)
        ends = consumer.end_offsets()
        while any(consumer.position(place) < ends[place] for place in places):
            yield from consumer.poll(timeout_ms=200)


class Delta:
    def __init__(self, directory: Path) -> None:
        self._path = directory / "delta"
        self.settings = {"kind": "delta", "path": str(self._path)}
        self.spark = {
            "spark.jars": ",".join(map(str, DELTA_JARS.glob("*.jar"))),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": "2",
        }

    def rows(self, address: str) -> Counter[Row]:
        """The files that the commits have added: nothing is ever removed here."""
        actions = (json.loads(line) for log in self._log.glob("*.json") for line in log.read_text().splitlines())
        return _rows_in(self._path / unquote(action["add"]["path"]) for action in actions if "add" in action)

    @property
    def _log(self) -> Path:
        return self._path / "_delta_log"
