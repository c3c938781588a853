"""Brokers that start before their metadata store is there wait, and say for what; a stranger's data is refused."""

from __future__ import annotations

import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster.three_brokers import NUMBERS, living_brokers
from tests.peers import BarnabasServer, ZooKeeperServer, eventually, free_port

PATIENCE_S = 40


def text_of(log: Path) -> str:
    return log.read_text() if log.exists() else ""


def test_three_brokers_wait_for_zookeeper(tmp_path: Path) -> None:
    port = free_port()
    arguments = ("--brokers", "3", "--zookeeper", f"127.0.0.1:{port}/cluster")
    settings = {"zookeeper.connection.timeout.ms": "500"}
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(BarnabasServer, tmp_path / "data", settings, arguments=arguments, timeout=PATIENCE_S)
        told = re.compile(rf"waiting for ZooKeeper.*127\.0\.0\.1:{port} did not answer.*check that it runs")
        eventually(lambda: bool(told.search(text_of(tmp_path / "data.log"))), True, PATIENCE_S)
        assert not starting.done()
        with ZooKeeperServer(tmp_path / "zookeeper", port=port), starting.result(PATIENCE_S) as server:
            eventually(lambda: living_brokers(server.address), set(NUMBERS), PATIENCE_S)


def test_a_broker_waits_for_a_file_that_somebody_has_locked(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    other = sqlite3.connect(tmp_path / "data" / "metadata.sqlite", isolation_level=None)
    with ThreadPoolExecutor(1) as pool:
        try:
            other.execute("PRAGMA journal_mode=WAL")
            other.execute("BEGIN IMMEDIATE")
            starting = pool.submit(BarnabasServer, tmp_path / "data", timeout=PATIENCE_S)
            told = re.compile(r"waiting for the metadata file.*metadata\.sqlite: database is locked")
            eventually(lambda: bool(told.search(text_of(tmp_path / "data.log"))), True, PATIENCE_S)
            assert not starting.done()
        finally:
            other.close()
        with starting.result(PATIENCE_S) as server:
            assert living_brokers(server.address) == {1}


def test_the_data_of_another_cluster_is_refused(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path / "zookeeper") as zookeeper:

        def settings(cluster: str) -> dict[str, str]:
            return {"zookeeper.connect": f"{zookeeper.address}/{cluster}"}

        with BarnabasServer(tmp_path / "data", settings("first")):
            pass
        with pytest.raises(AssertionError, match=r"meta\.properties says cluster\.id="):
            BarnabasServer(tmp_path / "data", settings("second"))
        with pytest.raises(AssertionError, match=r"meta\.properties says node\.id=1"):
            BarnabasServer(tmp_path / "data", {**settings("first"), "node.id": "2"})
