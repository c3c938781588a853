"""All of it in two minutes: three brokers, a shop that writes clicks and orders, and the pipelines on Spark.

    python examples/demo.py

It starts a cluster of three brokers, fills its topics and goes on writing to them, runs every pipeline of
examples/pipelines, the last of them live, and shows what has arrived in the lake, the tables and the topics. Brokers
and data are gone afterwards; what stays is the report, whose path is the last line.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from barnabas.spark.pipeline.definition_file import load_pipeline
from barnabas.spark.pipeline.errors import PipelineError
from barnabas.spark.pipeline.progress import Progress
from barnabas.spark.pipeline.report import report_html
from barnabas.spark.pipeline.reporters import Reporters, terminal
from barnabas.spark.pipeline.run_summary import RunSummary
from barnabas.spark.pipeline.runner import run_pipeline
from barnabas.spark.pipeline.session import spark_session
from barnabas.spark.pipeline.state import State
from barnabas.spark.pipeline.stopping import StopRequest, stop_on_signals
from barnabas.spark.pipeline.watching import watching
from barnabas.sync import Admin, Producer
from barnabas.testing import Cluster

PIPELINES = Path(__file__).parent / "pipelines"
LOADS = ("topic_to_lake.yaml", "orders_with_customers.yaml", "topic_to_mysql.yaml", "clickstream_sessions.yaml")
LIVE = "windowed_counts.yaml"
PAGES = ("/", "/search?q=shoes", "/search?q=hats", "/shoes/7", "/hats/3", "/cart", "/pay")
COUNTRIES = ("AT", "BR", "CZ", "DE", "JP", "NG")
SPARK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # for two minutes, compile less
}
HISTORY_S = 600
"""How far back the clicks go that are there at the start."""


class Shop:
    """Writes clicks and orders, some of them malformed, until it is closed."""

    def __init__(self, address: str, clicks: int, seed: int = 7) -> None:
        self._address = address
        self._clicks = clicks
        self._random = random.Random(seed)
        self._closed = threading.Event()
        self._orders = 0
        self._thread = threading.Thread(target=self._go_on, name="shop")

    def open(self) -> None:
        """The topics, and what has happened so far."""
        with Admin(self._address) as admin:
            for topic, partitions in {"clicks": 3, "orders": 2, "customers": 1}.items():
                admin.topics.create(topic, partitions=partitions)
        now = time.time()
        with Producer(self._address, linger_ms=20) as producer:
            for number in range(200):
                country = self._random.choice(COUNTRIES)
                producer.post("customers", f"{number},Customer {number},{country}".encode(), key=b"%d" % number)
            for number in range(self._clicks):
                self._click(producer, now - HISTORY_S + HISTORY_S * number / self._clicks)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def _go_on(self) -> None:
        with Producer(self._address, linger_ms=20) as producer:
            while not self._closed.wait(0.05):
                for _ in range(20):
                    self._click(producer, time.time())

    def _click(self, producer: Producer, at: float) -> None:
        moment = datetime.fromtimestamp(at, UTC).isoformat()
        user = f"user-{self._random.randrange(500)}"
        page = self._random.choice(PAGES)
        click = json.dumps({"user": user, "page": page, "at": moment, "ms": self._random.randrange(5, 900)})
        is_torn = self._random.random() < 0.0005
        producer.post("clicks", (click[:20] if is_torn else click).encode(), key=user.encode())
        if page == "/pay":
            self._orders += 1
            order = {"order_id": self._orders, "customer_id": self._random.randrange(210), "at": moment}
            amount = round(self._random.uniform(5, 500), 2)
            producer.post("orders", json.dumps({**order, "amount": amount}).encode(), key=b"%d" % self._orders)


@contextmanager
def opened(shop: Shop) -> Iterator[None]:
    try:
        shop.open()
        yield
    finally:
        shop.close()


@contextmanager
def stopped_after(seconds: float | None, stop: StopRequest) -> Iterator[None]:
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, stop.set)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Demo:
    """Runs pipelines in one Spark session and keeps what they tell."""

    def __init__(self, spark: SparkSession, console: Console, place: Path, stop: StopRequest) -> None:
        self._spark = spark
        self._console = console
        self._place = place
        self._stop = stop
        self.summary = RunSummary("The demo's pipelines", time.time())

    def run(self, file: str, seconds: float | None = None) -> None:
        """To its end; with `seconds` live for so long, as the last one."""
        if self._stop.is_set:
            raise KeyboardInterrupt
        mode = {} if seconds is None else {"PIPELINE_MODE": "micro-batch"}
        pipeline = load_pipeline(PIPELINES / file, {**os.environ, **mode})
        self._console.rule(f"[bold]{pipeline.name}[/]  {self._heading(file)}", align="left")
        state = State(self._place / "state" / pipeline.name)
        with (
            terminal(self._console) as bars,
            watching(self._spark, bars.tasks),
            stopped_after(seconds, self._stop),
        ):
            reporter = Reporters([bars, self])
            run_pipeline(pipeline, self._spark, state, functions_in=PIPELINES, reporter=reporter, stop=self._stop)

    def report(self, progress: Progress) -> None:
        self.summary.report(replace(progress, query=f"{progress.pipeline}: {progress.query}"))

    def _heading(self, file: str) -> str:
        return (PIPELINES / file).read_text().splitlines()[0].lstrip("# ").partition(":")[2].strip()

    def show(self, title: str, rows: Sequence[Mapping[str, Any]]) -> None:
        table = Table(title=title, title_justify="left")
        for name in rows[0] if rows else ("(nothing)",):
            table.add_column(name)
        for row in rows:
            table.add_row(*(str(value) for value in row.values()))
        self._console.print(table)

    def show_tables(self, address: str) -> None:
        lake = self._spark.read.parquet(str(self._place / "lake" / "clicks")).groupBy("date", "hour").count()
        self.show("lake/clicks: rows by hour", [row.asDict() for row in lake.orderBy("date", "hour").collect()])
        self.show(
            "table named_orders: sales by country",
            self._query(
                "shop.db",
                "SELECT country, count(*) AS orders, round(sum(amount), 2) AS amount FROM named_orders "
                "GROUP BY country ORDER BY sum(amount) DESC LIMIT 7",
            ),
        )
        self.show("table orders", self._query("orders.db", "SELECT count(*) AS orders, max(at) AS newest FROM orders"))
        self.show(
            "table sessions: the longest",
            self._query(
                "shop.db",
                "SELECT user, window_start, window_end, clicks, pages FROM sessions ORDER BY clicks DESC LIMIT 5",
            ),
        )
        for topic, columns in (("page-counts", "CAST(value AS STRING) AS value"), ("clicks.dead", _LETTER)):
            self.show(f"topic {topic}: the newest", self._newest(address, topic, columns))

    def _query(self, file: str, query: str) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(self._place / file)) as database:
            database.row_factory = sqlite3.Row
            return [dict(row) for row in database.execute(query)]

    def _newest(self, address: str, topic: str, columns: str) -> list[dict[str, Any]]:
        options = {"kafka.bootstrap.servers": address, "kafka.isolation.level": "read_committed"}
        reader = self._spark.read.format("barnabas").options(subscribe=topic, includeHeaders="true", **options)
        newest = reader.load().orderBy("timestamp", "offset", ascending=False).limit(5)
        return [row.asDict() for row in newest.selectExpr(*columns.split("; ")).collect()]


_LETTER = (
    "CAST(value AS STRING) AS value; "
    "CAST(filter(headers, h -> h.key = 'barnabas.dead.cause')[0].value AS STRING) AS cause"
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Three brokers, a shop, and the example pipelines on Spark.")
    parser.add_argument("--clicks", type=int, default=50_000, help="that are there at the start (%(default)s)")
    parser.add_argument("--live", type=float, default=30, help="seconds of the live pipeline (%(default)s)")
    parser.add_argument("--report", type=Path, default=Path("build/demo/report.html"), help="(%(default)s)")
    options = parser.parse_args()
    console = Console(stderr=True) if not sys.stdout.isatty() else Console()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="barnabas-demo-") as directory, Cluster(brokers=3) as cluster:
        place = Path(directory)
        os.environ["BARNABAS_BOOTSTRAP_SERVER"] = cluster.bootstrap
        os.environ["PIPELINE_DATA"] = str(place)
        os.environ["MYSQL_URL"] = str(place / "orders.db")  # a SQLite file stands in for MySQL
        os.environ["MYSQL_PASSWORD"] = ""
        console.print(f"three brokers are up at {cluster.bootstrap}; the shop writes {options.clicks:,} clicks")
        with (
            opened(Shop(cluster.bootstrap, options.clicks)),
            spark_session("demo", None, SPARK, place / "spark") as spark,
            stop_on_signals(console.print) as stop,
        ):
            demo = Demo(spark, console, place, stop)
            for file in LOADS:
                demo.run(file)
            demo.run(LIVE, seconds=options.live)
            demo.show_tables(cluster.bootstrap)
            options.report.parent.mkdir(parents=True, exist_ok=True)
            options.report.write_text(report_html(demo.summary), encoding="utf-8")
    console.print(f"done in {time.monotonic() - began:.0f} s; brokers and data are gone. The report:")
    print(options.report)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped; brokers and data are gone")
    except PipelineError as error:
        sys.exit(f"{error}\nbrokers and data are gone")
