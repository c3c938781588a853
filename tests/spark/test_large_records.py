"""A gigabyte of records of a megabyte each passes through a pipeline in an executor of a gigabyte."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow.parquet
import pytest

from barnabas.spark import worker_daemon
from barnabas.sync import Admin, Producer
from tests.peers import BarnabasServer, barnabas_command

RECORDS = 1000
EXECUTOR_BYTES = 1 << 30
PIPELINE = """
name: large
cluster: {{bootstrap_servers: "{address}"}}
mode: batch
state: {place}/state
spark: {{spark.driver.memory: 1g}}
sources:
  - name: scans
    topics: [scans]
    schema: id BIGINT, at TIMESTAMP, image STRING
sinks:
  - {{name: lake, kind: lake, from: scans, path: {place}/lake, time: at}}
"""


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_records_of_a_megabyte_need_no_more_memory_than_an_executor_has(tmp_path: Path) -> None:
    with BarnabasServer(tmp_path / "broker") as server:
        with Admin(server.address) as admin:
            admin.topics.create("scans", partitions=2)
        with Producer(server.address, max_request_size=2 << 20) as producer:
            for number in range(RECORDS):
                image = os.urandom(500_000).hex().encode()
                value = b'{"id":%d,"at":"2026-11-18T10:00:00Z","image":"%s"}' % (number, image)
                producer.send("scans", value, partition=number % 2)
        file = tmp_path / "large.yaml"
        file.write_text(PIPELINE.format(address=server.address, place=tmp_path))
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(barnabas_command("pipeline", "run", str(file)), stdout=log, stderr=log)
        try:
            most = max(held_bytes(process))
        finally:
            process.kill()
        assert process.returncode == 0, (tmp_path / "log").read_text()
    found = [
        pyarrow.parquet.read_table(part, columns=["id"]) for part in (tmp_path / "lake").glob("date=*/**/*.parquet")
    ]
    assert sorted(number for part in found for number in part.column("id").to_pylist()) == [*range(RECORDS)]
    assert most < EXECUTOR_BYTES


def held_bytes(process: subprocess.Popen[bytes]) -> Iterator[int]:
    """What the JVM and the workers of a pipeline hold, again and again until it ends."""
    while True:
        held = 0
        for each in psutil.Process(process.pid).children(recursive=True):
            try:
                if each.name() == "java" or worker_daemon.__name__ in each.cmdline():
                    held += each.memory_info().rss
            except psutil.Error:  # it has ended meanwhile
                continue
        yield held
        try:
            process.wait(0.1)
            return
        except subprocess.TimeoutExpired:
            continue
