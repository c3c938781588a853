"""A standalone master with workers as processes of their own, whose executors have only what `archive` packed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path, PurePosixPath

import pytest
from packaging.requirements import Requirement

from barnabas.spark.archive import SPARK_BRINGS, Environment, pack, plan
from barnabas.sync import Admin, Consumer, Producer
from tests.peers import HOST, ROOT, Broker
from tests.spark import cluster_driver
from tests.spark.cluster_driver import Work
from tests.spark.quick import QUICK_JVM, QUICK_SPARK
from tests.spark.standalone import StandaloneCluster

RECORDS = 40
PARTITIONS = 4
UNUSED = {"..", "include", "tests"}
"""Programs outside the packages, and what nothing runs."""
UNUSED_LIBRARY = "libarrow_flight"
NOT_INSTALLED = {*SPARK_BRINGS, "pandas"}
"""With pandas, which no task here loads, half of all the bytes would be packed and unpacked for nothing."""


def needed(names: dict[str, str]) -> Iterator[Distribution]:
    """What these distributions and their extras require, themselves included, without what is not used here."""
    seen: set[str] = set()
    todo = list(names.items())
    while todo:
        name, extra = todo.pop()
        found = distribution(name)
        for required in map(Requirement, found.requires or ()):
            if required.marker is None or required.marker.evaluate({"extra": extra}):
                todo += [(required.name, each) for each in required.extras or {""}]
        if name not in seen and name not in NOT_INSTALLED:
            seen.add(name)
            yield found


def install(directory: Path) -> Environment:
    """An environment with barnabas[spark], made of the files of this one: as pip would make it, in a second."""
    venv.create(directory, with_pip=False)
    version = f"python3.{sys.version_info.minor}"
    packages = directory / "lib" / version / "site-packages"
    for found in needed({"barnabas": "spark"}):
        for file in found.files or ():
            if file.suffix == ".pth" or file.name == "direct_url.json" or file.name.startswith(UNUSED_LIBRARY):
                continue
            if UNUSED.isdisjoint(file.parts[:2]):
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                os.link(str(found.locate_file(file)), packages / file)
    for ours in ("barnabas", "pyspark_barnabas"):
        shutil.copytree(ROOT / "src" / ours, packages / ours)
    return Environment(directory, (packages,), PurePosixPath(sys.base_prefix) / "bin" / version)


def fill(broker: Broker, topic: str, *others: str) -> None:
    with Admin(broker.address) as admin:
        for name in (topic, *others):
            admin.topics.create(name, partitions=PARTITIONS)
    with Producer(broker.address) as producer:
        for number in range(RECORDS):
            producer.post(topic, b"%d" % number, partition=number % PARTITIONS)


def committed_values(broker: Broker, topic: str) -> Counter[bytes]:
    consumer = Consumer(broker.address, topics=[topic], auto_offset_reset="earliest", isolation_level="read_committed")
    found: Counter[bytes] = Counter()
    with consumer:
        for record in consumer:
            assert record.value is not None
            found[record.value] += 1
            if found.total() == RECORDS:
                break
    return found


def run_driver(workers: int, broker: Broker, topic: str, copy: str, place: Path) -> None:
    """Run `cluster_driver` on as many workers, each of which must have read a part in the packed environment."""
    archive = place / "environment.tar.gz"
    pack(plan(install(place / "installed")), archive)
    with tarfile.open(archive) as packed:
        packed.extractall(place / "driver" / "environment", filter="fully_trusted")
    settings = json.dumps({**QUICK_SPARK, "spark.executor.extraJavaOptions": QUICK_JVM})
    with StandaloneCluster(place, workers) as cluster:
        checkpoint = str(place / "checkpoint")
        work = Work(cluster.url, str(archive), broker.address, topic, copy, checkpoint, str(workers), settings)
        done = subprocess.run(
            [sys.executable, cluster_driver.__file__, *work],
            cwd=place / "driver",
            env={**os.environ, "PYSPARK_PYTHON": "./environment/bin/python", "SPARK_LOCAL_IP": HOST},
            stdout=subprocess.PIPE,
            text=True,
            timeout=600,
            check=True,
        )
    tasks = json.loads(done.stdout)
    assert sum(rows for _, _, rows in tasks) == RECORDS
    assert len(tasks) == PARTITIONS
    for worker in cluster.worker_directories:
        assert any(Path(place).is_relative_to(worker) for place, _, _ in tasks)
    assert all(Path(prefix).is_relative_to(place) for place, prefix, _ in tasks)


@pytest.mark.timeout(900)
def test_an_executor_of_a_cluster_reads_with_the_packed_environment(
    spark_broker: Broker, topic_name: str, tmp_path: Path
) -> None:
    fill(spark_broker, topic_name)
    run_driver(1, spark_broker, topic_name, "", tmp_path)


@pytest.mark.proof
@pytest.mark.timeout(900)
def test_executors_of_a_cluster_read_and_write_with_the_packed_environment(
    spark_broker: Broker, topic_name: str, tmp_path: Path
) -> None:
    copy = f"{topic_name}-copy"
    fill(spark_broker, topic_name, copy)
    run_driver(2, spark_broker, topic_name, copy, tmp_path)
    assert committed_values(spark_broker, copy) == Counter(b"%d" % number for number in range(RECORDS))
