"""The source archive and the wheel, built from a copy of the tree and installed where nothing else is.

The wheel of a release, whose hot path is compiled, takes minutes to build: it is part of the proof.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.peers import ROOT, Broker, NewTopic

pytestmark = pytest.mark.timeout(1800)

TREE = ("LICENSE", "README.md", "pyproject.toml", "setup.py", "src")
NO_INDEX = ("No matching distribution found", "Could not find a version", "Failed to establish a new connection")
USE = """
from barnabas.records import engine
from barnabas.records.builder import BatchBuilder
from barnabas.records.reader import records_of
builder = BatchBuilder()
builder.append(b"key", b"value", [("h", None)], 5)
assert records_of(memoryview(builder.build()))[0].value == b"value"
print(engine.describe())
"""

PRODUCE = """
import asyncio, sys
from barnabas import BufferFull, Consumer, NotOpen, Producer, RecordTooLarge
from barnabas.client.produce import accumulator
assert not accumulator.__file__.endswith(".py")

async def main(address, topic):
    async with Producer(address, transactional_id=topic, buffer_memory=100_000) as producer:
        async with producer.transaction():
            for number in range(5000):
                try:
                    producer.post(topic, b"%d" % number, key=b"key", headers=[("h", None)])
                except BufferFull:
                    await producer.room()
                    producer.post(topic, b"%d" % number, key=b"key", headers=[("h", None)])
            for wrong in (b"x" * 2_000_000, "text"):
                try:
                    await producer.send(topic, wrong)
                except (RecordTooLarge, TypeError) as error:
                    print(type(error).__name__)
    try:
        producer.post(topic, b"late")
    except NotOpen as error:
        print(error)
    reading = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    async with Consumer(address, topics=[topic], **reading) as consumer:
        seen = []
        async for record in consumer:
            seen.append(int(record.value))
            if len(seen) == 5000:
                break
    assert seen == list(range(5000))

asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), 60))
"""


class Packages(NamedTuple):
    sdist: Path
    wheel: Path


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1500,
        check=False,
    )
    if done.returncode and any(sign in done.stdout for sign in NO_INDEX) and os.environ.get("CI") != "true":
        pytest.skip("the package index is out of reach")
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    tree = tmp_path_factory.mktemp("tree")
    output = tmp_path_factory.mktemp("dist")
    for name in TREE:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
            shutil.copytree(source, tree / name, ignore=ignored)
        else:
            shutil.copy(source, tree)
    required = {"BARNABAS_REQUIRE_COMPILED": "1", "CFLAGS": "-O0"}  # what is built here need not be fast
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", output, tree, **required)
    (sdist,), (wheel,) = output.glob("*.tar.gz"), output.glob("*.whl")
    return Packages(sdist, wheel)


@pytest.fixture(scope="module")
def release(packages: Packages, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel of a release, whose hot path is compiled."""
    directory = tmp_path_factory.mktemp("release")
    with tarfile.open(packages.sdist) as archive:
        archive.extractall(directory, filter="data")
    (tree,) = directory.iterdir()
    required = {"BARNABAS_COMPILE_BROKER": "1", "BARNABAS_COMPILE_LEVEL": "0", "BARNABAS_REQUIRE_COMPILED": "1"}
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", directory / "dist", tree, **required)
    (wheel,) = (directory / "dist").glob("*.whl")
    return installed(wheel, directory / "venv")


def installed(package: Path, directory: Path, **environment: str) -> Path:
    """The Python of a new environment that holds the package and what it depends on."""
    venv.create(directory, with_pip=False)
    python = directory / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", package, **environment)
    return python


def test_the_archives_hold_what_they_should(packages: Packages) -> None:
    with tarfile.open(packages.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "setup.py", "src/barnabas/py.typed"} <= names
    assert {"src/barnabas/records/codec.py", "src/barnabas/records/column_codec.py"} <= names
    assert not [name for name in names if name.endswith((".so", ".c", ".pyc"))]
    with zipfile.ZipFile(packages.wheel) as archive:
        files = archive.namelist()
        (entry_points,) = [archive.read(name).decode() for name in files if name.endswith("/entry_points.txt")]
    assert "[pytest11]\nbarnabas = barnabas.testing.plugin" in entry_points
    assert "barnabas/py.typed" in files
    assert "pyspark_barnabas/__init__.py" in files  # where Spark looks for data sources
    assert [name for name in files if name.startswith("barnabas/records/_codec_c.") and not name.endswith(".c")]
    assert [name for name in files if name.endswith("/licenses/LICENSE")]
    assert not [name for name in files if name.endswith((".c", ".pyc"))]


def test_the_wheel_brings_the_compiled_codec(packages: Packages, tmp_path: Path) -> None:
    python = installed(packages.wheel, tmp_path / "wheel")
    assert run(python, "-I", "-c", USE).startswith("compiled record codec: ")
    assert run(python, "-c", USE, BARNABAS_PURE="1").startswith("uncompiled record codec: BARNABAS_PURE is set")
    assert "cython" not in run(sys.executable, "-m", "pip", "--python", python, "list").lower()


@pytest.mark.proof
def test_without_a_compiler_the_source_archive_installs_plain_python(packages: Packages, tmp_path: Path) -> None:
    python = installed(packages.sdist, tmp_path / "sdist", CC=shutil.which("false") or "false")
    expected = "uncompiled record codec: barnabas.records._codec_c is not built; "
    assert run(python, "-I", "-c", USE).startswith(expected)


SUITES = ("groups_join", "produce", "fetch", "idempotence", "topics", "transactions")


@pytest.mark.parametrize("suite", [SUITES[0], *(pytest.param(suite, marks=pytest.mark.proof) for suite in SUITES[1:])])
def test_the_compiled_hot_path_answers_as_its_sources_do(release: Path, suite: str) -> None:
    """The tests that judge the sources request by request judge the release, too."""
    where = run(release, "-I", "-c", "import barnabas.broker.dispatch as module; print(module.__file__)")
    assert not where.strip().endswith(".py")
    tests = ROOT / "tests" / "broker" / f"test_broker_{suite}.py"
    run(sys.executable, "-m", "pytest", "-q", tests, BARNABAS_TEST_PYTHON=str(release))


@pytest.mark.proof
def test_the_compiled_producer_behaves_as_its_sources_do(release: Path, broker: Broker, new_topic: NewTopic) -> None:
    told = run(release, "-I", "-c", PRODUCE, broker.address, new_topic(1))
    assert told.splitlines() == ["RecordTooLarge", "TypeError", "this Producer was closed"]
