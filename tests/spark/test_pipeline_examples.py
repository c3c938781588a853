"""Every pipeline of examples/pipelines runs as it stands there, and gives what its heading says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pymysql
import pytest

from barnabas.spark.pipeline.job import Totals
from barnabas.sync import Admin, Producer
from tests.peers import BarnabasServer, Broker, MariaDbServer
from tests.spark.pipelines import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"
BEGIN = datetime(2026, 11, 16, 10, tzinfo=UTC)


def at(seconds: int) -> str:
    return (BEGIN + timedelta(seconds=seconds)).isoformat()


def click(user: str, page: str, seconds: int) -> bytes:
    return json.dumps({"user": user, "page": page, "at": at(seconds), "ms": 5 * seconds}).encode()


CLICKS = [
    *(click("ann", "/search?q=shoes", second) for second in (0, 10, 20)),
    *(click("ann", "/cart", second) for second in (100, 110)),
    click("bob", "/search", 5),
    b'{"user": "eve"',
    click("zoe", "/", 3700),  # moves the watermark past all others
]
ORDERS = [{"order_id": number, "customer_id": number % 3, "amount": number, "at": at(number)} for number in range(6)]
CUSTOMERS = [b"0,Ann,AT", b"1,Bob,BE", b"1,Bob,BG"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with BarnabasServer(tmp_path_factory.mktemp("shop") / "data") as server:
        topics: dict[str, list[tuple[bytes, bytes | None]]] = {
            "clicks": [(value, None) for value in CLICKS],
            "orders": [(json.dumps(order).encode(), None) for order in ORDERS],
            "customers": [(value, value[:1]) for value in CUSTOMERS],
        }
        with Admin(server.address) as admin, Producer(server.address) as producer:
            for topic, records in topics.items():
                admin.topics.create(topic, partitions=1 if topic == "clicks" else 2)
                for value, key in records:
                    producer.post(topic, value, key=key)
        yield server


@pytest.fixture
def bench(spark: SparkSession, shop: Broker, tmp_path: Path) -> Bench:
    return Bench(spark, shop.address, tmp_path)


def run(bench: Bench, example: str) -> Totals:
    return bench.run((EXAMPLES / example).read_text(), functions_in=EXAMPLES)


def test_every_example_is_run_here() -> None:
    here = Path(__file__).read_text()
    assert [file.name for file in EXAMPLES.glob("*.yaml") if f'"{file.name}"' not in here] == []


def test_topic_to_lake(bench: Bench) -> None:
    assert run(bench, "topic_to_lake.yaml").rows == {"dead-letters": 1, "lake": 7}
    rows = bench.spark.read.parquet(str(bench.place / "lake" / "clicks")).collect()
    assert sorted((row.user, row.hour) for row in rows) == [("ann", 10)] * 5 + [("bob", 10), ("zoe", 11)]
    assert run(bench, "topic_to_lake.yaml").rows == {}


def test_topic_to_mysql(bench: Bench, mariadb: MariaDbServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MYSQL_PASSWORD", "")
    port = int(mariadb.url.rpartition(":")[2].partition("/")[0])
    connection = pymysql.connect(host="127.0.0.1", port=port, user="root", autocommit=True)
    with closing(connection), connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE example")  # apart from the tables of other tests
        cursor.execute("USE example")
        text, url = (EXAMPLES / "topic_to_mysql.yaml").read_text(), mariadb.url.replace("/shop", "/example")
        assert bench.run(text, MYSQL_URL=url).rows == {"orders-table": 5}
        assert bench.run(text, MYSQL_URL=url).rows == {}
        cursor.execute("SELECT order_id, customer_id, amount FROM orders ORDER BY order_id")
        assert list(cursor.fetchall()) == [(number, number % 3, number) for number in range(1, 6)]


def test_clickstream_sessions(bench: Bench) -> None:
    run(bench, "clickstream_sessions.yaml")
    found = bench.rows("shop.db", "SELECT user, clicks, pages, slowest_ms FROM sessions ORDER BY user, clicks")
    assert found == [("ann", 2, 1, 550), ("ann", 3, 1, 100), ("bob", 1, 1, 25)]


def test_orders_joined_with_customers(bench: Bench) -> None:
    rows = run(bench, "orders_with_customers.yaml").rows
    assert rows == {"dead-letters": 0, "named-orders-table": 6, "named-orders-topic": 6}
    found = bench.rows("shop.db", "SELECT order_id, customer, country FROM named_orders ORDER BY order_id")
    customers = [("Ann", "AT"), ("Bob", "BG"), (None, "??")]
    assert found == [(number, *customers[number % 3]) for number in range(6)]
    sent = [(bytes(record.key).decode(), json.loads(record.value)) for record in bench.records("named-orders")]
    assert sorted((value["order_id"], key) for key, value in sent) == [
        (number, customers[number % 3][1]) for number in range(6)
    ]


def test_windowed_counts_go_back_to_a_topic(bench: Bench) -> None:
    run(bench, "windowed_counts.yaml")
    values: list[dict[str, Any]] = [json.loads(record.value) for record in bench.records("page-counts")]
    counts = {(value["window_start"], value["page"]): value["views"] for value in values}
    assert len(counts) == len(values)
    assert counts["2026-11-16T10:00:00Z", "/search?q=shoes"] == 1
    assert counts["2026-11-16T10:01:40Z", "/cart"] == 1
    assert sum(counts.values()) == 6
