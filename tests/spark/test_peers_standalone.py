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
"""Programs outside the packages, and a fifth of all the bytes, which nothing runs."""


@pytest.fixture(params=[1, pytest.param(2, marks=pytest.mark.proof)], ids=["one worker", "two workers"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path, request.param) as running:
        yield running


def needed(names: dict[str, str]) -> Iterator[Distribution]:
    """What these distributions and their extras require, itself included, without what Spark brings along."""
    seen: set[str] = set()
    todo = list(names.items())
    while todo:
        name, extra = todo.pop()
        found = distribution(name)
        for required in map(Requirement, found.requires or ()):
            if required.marker is None or required.marker.evaluate({"extra": extra}):
                todo += [(required.name, each) for each in required.extras or {""}]
        if name not in seen and name not in SPARK_BRINGS:
            seen.add(name)
            yield found


def install(directory: Path) -> Environment:
    """An environment with barnabas[spark], made of the files of this one: as pip would make it, in a second."""
    venv.create(directory, with_pip=False)
    version = f"python3.{sys.version_info.minor}"
    packages = directory / "lib" / version / "site-packages"
    for found in needed({"barnabas": "spark"}):
        for file in found.files or ():
            if UNUSED.isdisjoint(file.parts[:2]) and file.suffix != ".pth" and file.name != "direct_url.json":
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                os.link(str(found.locate_file(file)), packages / file)
    for ours in ("barnabas", "pyspark_barnabas"):
        shutil.copytree(ROOT / "src" / ours, packages / ours)
    return Environment(directory, (packages,), PurePosixPath(sys.base_prefix) / "bin" / version)


def fill(broker: Broker, topic: str, copy: str) -> None:
    with Admin(broker.address) as admin:
        for name in (topic, copy):
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


@pytest.mark.timeout(900)
def test_executors_of_a_cluster_read_and_write_with_the_packed_environment(
    cluster: StandaloneCluster, spark_broker: Broker, topic_name: str, tmp_path: Path
) -> None:
    archive = tmp_path / "environment.tar.gz"
    pack(plan(install(tmp_path / "installed")), archive)
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "driver" / "environment", filter="fully_trusted")
    copy = f"{topic_name}-copy"
    fill(spark_broker, topic_name, copy)
    settings = json.dumps({**QUICK_SPARK, "spark.executor.extraJavaOptions": QUICK_JVM})
    checkpoint, workers = str(tmp_path / "checkpoint"), str(len(cluster.worker_directories))
    work = Work(cluster.url, str(archive), spark_broker.address, topic_name, copy, checkpoint, workers, settings)
    done = subprocess.run(
        [sys.executable, cluster_driver.__file__, *work],
        cwd=tmp_path / "driver",
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
    assert committed_values(spark_broker, copy) == Counter(b"%d" % number for number in range(RECORDS))
