"""Jobs in environments of their own: one that is not activated, and one with the newest Spark that is allowed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.sync import Producer
from tests.peers import ROOT, Broker, absent, java
from tests.spark import smoke_driver
from tests.spark.quick import QUICK_SPARK

RECORDS = 5
NEWEST_SPARK = "4.3.0"
TREE = ("LICENSE", "README.md", "pyproject.toml", "setup.py", "src")
NO_INDEX = ("No matching distribution found", "Could not find a version", "Failed to establish a new connection")


@pytest.fixture
def filled(spark_topic: Callable[..., str], spark_producer: Producer) -> str:
    topic = spark_topic()
    for number in range(RECORDS):
        spark_producer.post(topic, b"%d" % number)
    spark_producer.flush()
    return topic


def run_smoke(
    python: Path | str, broker: Broker, topic: str, place: Path, steps: list[str], environment: dict[str, str]
) -> Any:
    settings = {**QUICK_SPARK, "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    done = subprocess.run(
        [python, smoke_driver.__file__, broker.address, topic, place, json.dumps(settings), *steps],
        env=environment,
        cwd=place,
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def without_activation(**more: str) -> dict[str, str]:
    """An environment whose PATH has Java and the system's programs, and not those of the running Python."""
    path = os.pathsep.join([os.path.dirname(os.path.realpath(java())), "/usr/bin", "/bin"])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "VIRTUAL_ENV"))}
    return {**kept, "PATH": path, **more}


def test_a_job_in_an_environment_that_is_not_activated_finds_the_source(
    spark_broker: Broker, filled: str, tmp_path: Path
) -> None:
    found = run_smoke(sys.executable, spark_broker, filled, tmp_path, ["read"], without_activation())
    assert found["rows"] == {"read": RECORDS}


@pytest.mark.proof
@pytest.mark.timeout(1800)
def test_the_newest_spark_that_is_allowed_reads_writes_streams_and_runs_a_pipeline(
    spark_broker: Broker, filled: str, tmp_path: Path
) -> None:
    tree, home, place = tmp_path / "tree", tmp_path / "venv", tmp_path / "place"
    tree.mkdir()
    place.mkdir()
    for name in TREE:
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tree / name)
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", f"{tree}[spark]", f"pyspark=={NEWEST_SPARK}"]
    done = subprocess.run(install, capture_output=True, text=True, timeout=1200, check=False)
    if any(sign in done.stderr for sign in NO_INDEX):
        absent(f"no package index has pyspark {NEWEST_SPARK}: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    steps = ["read", "write", "stream", "pipeline"]
    alone = {name: value for name, value in without_activation().items() if name != "PYTHONPATH"}
    found = run_smoke(python, spark_broker, filled, place, steps, alone)
    assert found["pyspark"] == NEWEST_SPARK
    assert int(found["pandas"].partition(".")[0]) < 3
    assert found["rows"] == dict.fromkeys(steps, RECORDS)
