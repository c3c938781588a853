"""The pytest fixtures, in a project of somebody else's: other clients, other test styles, several workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLAIN_PROJECT = """
import asyncio
import aiokafka, confluent_kafka, pytest

def test_confluent_kafka(barnabas_cluster, barnabas_topic):
    producer = confluent_kafka.Producer({"bootstrap.servers": barnabas_cluster.bootstrap})
    producer.produce(barnabas_topic, b"hello")
    assert producer.flush(60) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": barnabas_cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([barnabas_topic])
    assert consumer.poll(60).value() == b"hello"
    consumer.close()

def test_aiokafka(barnabas_cluster, barnabas_topic):
    async def run():
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=barnabas_cluster.bootstrap) as producer:
            await producer.send_and_wait(barnabas_topic, b"hello")
        async with aiokafka.AIOKafkaConsumer(
            barnabas_topic, bootstrap_servers=barnabas_cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            return (await consumer.getone()).value
    assert asyncio.run(run()) == b"hello"

@pytest.mark.parametrize("turn", [1, 2])
def test_every_test_has_a_cluster_of_its_own(barnabas_cluster, turn):
    barnabas_cluster.create_topic("the-same-name")

@pytest.mark.barnabas(brokers=3, options={"num.partitions": 5})
def test_a_marker_says_what_the_cluster_is_like(barnabas_cluster):
    barnabas_cluster.kill(3)
    assert barnabas_cluster.brokers == (1, 2, 3)

@pytest.mark.barnabas(in_process=True)
def test_in_process(barnabas_cluster, barnabas_topic):
    assert barnabas_cluster.leader_of(barnabas_topic) == 1
"""

IMPORTS_PROJECT = """
import sys

def test_nothing_of_barnabas_is_loaded_but_the_plugin():
    ours = {name for name in sys.modules if name.startswith("barnabas")}
    assert ours == {"barnabas", "barnabas.testing", "barnabas.testing.plugin"}
    assert not {"asyncio", "uvloop", "pyarrow", "typer", "kazoo", "prometheus_client", "crc32c"} & set(sys.modules)
"""

FEW_PLUGINS = ("-p", "no:timeout", "-p", "no:randomly", "-p", "no:hypothesispytest")
"""The others take longer to import than the tests to run, and some import asyncio."""


def run_pytest(project: Path, *arguments: str) -> str:
    """Warnings are errors there; the plugin is found by its entry point."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--strict-markers", "-W", "error", *arguments],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def test_other_clients_are_tested_against_the_fixtures(project: Path) -> None:
    (project / "test_orders.py").write_text(PLAIN_PROJECT)
    assert "6 passed" in run_pytest(project, *FEW_PLUGINS)


def test_workers_of_xdist_have_clusters_of_their_own(project: Path) -> None:
    (project / "test_orders.py").write_text(PLAIN_PROJECT)
    assert "3 passed" in run_pytest(project, *FEW_PLUGINS, "-n", "2", "-k", "own or in_process")


def test_nothing_is_imported_until_a_fixture_is_used(project: Path) -> None:
    (project / "test_imports.py").write_text(IMPORTS_PROJECT)
    assert "1 passed" in run_pytest(project, *FEW_PLUGINS, "-p", "no:xdist")
