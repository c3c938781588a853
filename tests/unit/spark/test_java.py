"""Which Java Spark gets, and what is said where there is none that can run it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from barnabas.spark.java import JavaMissing, require_java
from tests.cli.commands import assert_one_line, run_barnabas
from tests.peers import ROOT


def make_java(directory: Path, told: str) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize("version", ['openjdk version "17.0.2" 2022-01-18', 'java version "21" 2023-09-19 LTS'])
def test_java_home_goes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    home, other = make_java(tmp_path / "home", version), make_java(tmp_path / "other", version)
    monkeypatch.setenv("PATH", str(other.parent))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert require_java().path == home
    monkeypatch.delenv("JAVA_HOME")
    assert require_java().path == other


def test_no_java_at_all_is_one_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissing, match=r"no java on the PATH.*Java 17 or later.*`make setup`"):
        require_java()


def test_a_wrong_java_home_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match=rf"JAVA_HOME is {tmp_path}, but there is no {tmp_path}/bin/java"):
        require_java()


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ('java version "1.8.0_392"', "is Java 8"),
        ('openjdk version "11.0.21" 2023-10-17', "is Java 11"),
        ("Error: could not find libjava.so", "does not tell a version.*libjava.so"),
    ],
)
def test_a_java_that_cannot_run_spark_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, said: str
) -> None:
    make_java(tmp_path, told)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match=said):
        require_java()


def test_a_pipeline_without_java_ends_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = shutil.copy(ROOT / "examples" / "pipelines" / "topic_to_lake.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)  # the example keeps its state in the directory where it runs
    done = run_barnabas("pipeline", "run", str(file), environment={"JAVA_HOME": str(tmp_path)})
    assert_one_line(done, f"JAVA_HOME is {tmp_path}", "Spark needs Java 17 or later", "`make setup` installs it")
