"""All of it in a minute: three brokers, a shop that writes clicks and orders, and the pipelines on Spark.

    python examples/demo.py

It starts a cluster of three brokers, fills its topics and goes on writing to them, runs every pipeline of
examples/pipelines, the last of them live, and shows how fast they were and what has arrived in the lake, the tables and
the topics. Brokers and data are gone afterwards; what stays is the report, whose path is the last line.
"""

from __future__ import annotations

import argparse
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

import pyarrow
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
PAGES = {"/": 20, "/search?q=shoes": 25, "/search?q=hats": 25, "/shoes/7": 12, "/hats/3": 12, "/cart": 4, "/pay": 2}
"""With how often they are seen."""
COUNTRIES = ("AT", "BR", "CZ", "DE", "JP", "NG")
SPARK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # for a minute, compile less
}
HISTORY_S = 6 * 3600
"""How far back the clicks go that are there at the start."""
CHUNK = 50_000
VISITORS = 300
"""Who are in the shop at the same time."""
CLICKS_OF_A_VISITOR = 20
LIVE_CLICKS_PER_S = 2000


class Shop:
    """Writes clicks and orders, some of them malformed, until it is closed."""

    def __init__(self, address: str, clicks: int, seed: int = 7) -> None:
        self._address = address
        self._clicks = clicks
        self._random = random.Random(seed)
        self._closed = threading.Event()
        self._clicked = 0
        self._orders = 0
        self._thread = threading.Thread(target=self._go_on, name="shop")

    def open(self) -> None:
        """The topics, and what has happened so far."""
        with Admin(self._address) as admin:
            for topic, partitions in {"clicks": 3, "orders": 2, "customers": 1}.items():
                admin.topics.create(topic, partitions=partitions)
        begin = time.time() - HISTORY_S
        with Producer(self._address, linger_ms=20) as producer:
            customers = [
                f"{number},Customer {number},{self._random.choice(COUNTRIES)}".encode() for number in range(200)
            ]
            _send(producer, "customers", [b"%d" % number for number in range(200)], customers)
            for first in range(0, self._clicks, CHUNK):
                count = min(CHUNK, self._clicks - first)
                self._write(producer, [begin + HISTORY_S * (first + n) / self._clicks for n in range(count)])
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def _go_on(self) -> None:
        pause = 0.1
        with Producer(self._address, linger_ms=20) as producer:
            while not self._closed.wait(pause):
                self._write(producer, [time.time()] * round(LIVE_CLICKS_PER_S * pause))

    def _write(self, producer: Producer, moments: Sequence[float]) -> None:
        """A click at each of the moments, and an order for each that pays."""
        chance = self._random
        pages = chance.choices(list(PAGES), list(PAGES.values()), k=len(moments))
        users, clicks, buyers, orders = [], [], [], []
        for at, page in zip(moments, pages):
            user = b"user-%d" % (self._clicked // CLICKS_OF_A_VISITOR + chance.randrange(VISITORS))
            moment = datetime.fromtimestamp(at, UTC).isoformat().encode()
            click = b'{"user":"%s","page":"%s","at":"%s","ms":%d}' % (
                user, page.encode(), moment, chance.randrange(5, 900),
            )  # fmt: skip
            self._clicked += 1
            users.append(user)
            clicks.append(click[:20] if self._clicked % 2000 == 0 else click)
            if page == "/pay":
                self._orders += 1
                customer, amount = chance.randrange(210), chance.uniform(5, 500)
                buyers.append(b"%d" % customer)
                orders.append(
                    b'{"order_id":%d,"customer_id":%d,"at":"%s","amount":%.2f}'
                    % (self._orders, customer, moment, amount)
                )
        _send(producer, "clicks", users, clicks)
        if orders:
            _send(producer, "orders", buyers, orders)


def _send(producer: Producer, topic: str, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
    producer.send_columns(topic, pyarrow.table({"key": keys, "value": values}))


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

    def show_speed(self) -> None:
        """Of each pipeline, while batches ran."""
        self.show(
            "how fast they were",
            [
                {
                    "pipeline": name,
                    "records": f"{query.records:,}",
                    "seconds": f"{query.busy_seconds:.1f}",
                    "records/s": f"{query.records / max(query.busy_seconds, 0.001):,.0f}",
                }
                for name, query in self.summary.queries.items()
                if query.records
            ],
        )

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
    parser.add_argument("--clicks", type=int, default=500_000, help="that are there at the start (%(default)s)")
    parser.add_argument("--live", type=float, default=12, help="seconds of the live pipeline (%(default)s)")
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
            demo.show_speed()
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
