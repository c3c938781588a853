"""The examples that promise exactly once keep their promise: killed in the middle, they lose and double nothing."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread

import confluent_kafka
import pymysql
import pytest

from barnabas import Admin, Producer
from tests.peers import ROOT, MariaDbServer, eventually

PARTITIONS = 3
Totals = dict[str, tuple[int, int]]


class Orders:
    """Orders of a few customers, which come in as long as it takes, and what they add up to."""

    def __init__(self, address: str, topic: str) -> None:
        self.made: list[tuple[str, int]] = []
        self._address = address
        self._topic = topic
        self._is_enough = Event()

    @property
    def totals(self) -> Totals:
        totals: Totals = {}
        for customer, amount in self.made:
            orders, sum_ = totals.get(customer, (0, 0))
            totals[customer] = orders + 1, sum_ + amount
        return totals

    def create_topic(self) -> None:
        async def create() -> None:
            async with Admin(self._address) as admin:
                await admin.topics.create(self._topic, partitions=PARTITIONS)

        asyncio.run(create())

    @contextmanager
    def coming_in(self) -> Iterator[None]:
        """Send them, some hundred in a second, while the block runs; its end waits for the last."""
        feeding = Thread(target=asyncio.run, args=(self._feed(),))
        feeding.start()
        try:
            yield
        finally:
            self._is_enough.set()
            feeding.join(60)

    async def _feed(self) -> None:
        chance = random.Random(self._topic)
        async with Producer(self._address, linger_ms=0) as producer:
            while not self._is_enough.is_set():
                for _ in range(10):
                    customer, amount = f"customer-{chance.randrange(7)}", chance.randrange(100)
                    self.made.append((customer, amount))
                    producer.post(self._topic, b"%d" % amount, key=customer.encode())
                await asyncio.sleep(0.02)


class Worker:
    """One run of an example, its output in a file."""

    def __init__(self, directory: Path, name: str, *arguments: str) -> None:
        self.log = directory / f"{name}-{time.monotonic_ns()}.log"
        with self.log.open("wb") as output:
            program = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *arguments]
            self.process = subprocess.Popen(program, stdout=output, stderr=subprocess.STDOUT)

    def has_done(self, lines: int) -> None:
        """Wait until it got on so far."""

        def enough() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return len(self.log.read_text().splitlines()) >= lines

        eventually(enough, True, timeout=40)

    def kill(self) -> None:
        """As power loss would; it must have been alive."""
        assert self.process.poll() is None, self.log.read_text()
        self.process.kill()
        self.process.wait(60)


@contextmanager
def workers(directory: Path, name: str) -> Iterator[Callable[..., Worker]]:
    started: list[Worker] = []

    def start(*arguments: str) -> Worker:
        started.append(Worker(directory, name, *arguments))
        return started[-1]

    try:
        yield start
    finally:
        for worker in started:
            worker.process.kill()
            worker.process.wait(60)


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDbServer]:
    with MariaDbServer(tmp_path_factory.mktemp("mariadb")) as server:
        yield server


def test_sqlite_holds_every_order_once_after_crashes(cluster: str, topic_name: str, tmp_path: Path) -> None:
    orders = Orders(cluster, topic_name)
    orders.create_topic()
    path = tmp_path / "totals.db"

    def totals() -> Totals:
        with closing(sqlite3.connect(path)) as database:
            return {customer: (n, sum_) for customer, n, sum_ in database.execute("SELECT * FROM totals")}

    with workers(tmp_path, "exactly_once_sqlite") as start:
        with orders.coming_in():
            for _ in range(2):
                worker = start(cluster, topic_name, str(path))
                worker.has_done(5)
                worker.kill()
        start(cluster, topic_name, str(path))
        eventually(totals, orders.totals, timeout=40)


def test_mariadb_holds_every_order_once_after_a_worker_died(
    group_cluster: str, topic_name: str, tmp_path: Path, mariadb: MariaDbServer
) -> None:
    orders = Orders(group_cluster, topic_name)
    orders.create_topic()
    database = pymysql.connect(host="127.0.0.1", port=int(mariadb.url.rpartition(":")[2].split("/")[0]), user="root")
    with closing(database), database.cursor() as cursor:
        name = topic_name.replace("-", "_")
        cursor.execute(f"CREATE DATABASE {name}")
        url = mariadb.url.replace("/shop", f"/{name}")

        def totals() -> Totals:
            cursor.execute(f"SELECT customer, orders, amount FROM {name}.totals")
            found = {customer: (n, sum_) for customer, n, sum_ in cursor.fetchall()}
            database.commit()
            return found

        with workers(tmp_path, "exactly_once_mariadb") as start:
            with orders.coming_in():
                first, _ = (start(group_cluster, topic_name, url) for _ in range(2))
                first.has_done(5)
                first.kill()
            eventually(totals, orders.totals, timeout=60)


def test_a_topic_becomes_another_once_after_a_crash(group_cluster: str, topic_name: str, tmp_path: Path) -> None:
    orders = Orders(group_cluster, topic_name)
    orders.create_topic()
    target = f"{topic_name}-out"
    with workers(tmp_path, "exactly_once_topic_to_topic") as start:
        with orders.coming_in():
            worker = start(group_cluster, topic_name, target, topic_name)
            worker.has_done(5)
            worker.kill()
        start(group_cluster, topic_name, target, topic_name)
        found = read_committed(group_cluster, target, len(orders.made))
    assert found == Counter((customer, f"invoice for {amount}") for customer, amount in orders.made)


def read_committed(address: str, topic: str, count: int) -> Counter[tuple[str, str]]:
    """Keys and values that librdkafka finds: so many records, and those that come in the moment after them."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found: Counter[tuple[str, str]] = Counter()
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline:
            for message in consumer.consume(1000, timeout=0.3):
                assert message.error() is None, message.error()
                found[message.key().decode(), message.value().decode()] += 1
            if found.total() >= count:
                deadline = min(deadline, time.monotonic() + 0.5)
        return found
    finally:
        consumer.close()
