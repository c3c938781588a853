"""The archive of Spark's classes: named after what it fits, and there only when it is whole."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from barnabas.spark.class_archive import ClassArchive
from barnabas.spark.java import Java
from barnabas.spark.pipeline import class_recorder

JAVA = 'openjdk version "17.0.15" 2025-04-15'


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "barnabas"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands of processes that would have been started."""
    commands: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: commands.append(command))
    return commands


def write(options: list[str]) -> None:
    """As a JVM does when it ends."""
    (path,) = (option.partition("=")[2] for option in options if option.startswith("-XX:ArchiveClassesAtExit="))
    Path(path).write_bytes(b"classes")


def test_an_archive_is_used_once_it_was_recorded(cache: Path) -> None:
    archive = ClassArchive.of(JAVA)
    assert archive.options == []
    with archive.recording(lambda: True) as options:
        write(options)
        assert archive.options == []
    assert f"-XX:SharedArchiveFile={archive.file}" in archive.options
    assert os.listdir(cache) == [archive.file.name]


def test_an_archive_fits_one_java_and_one_set_of_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = tmp_path / "jars" / "spark.jar"
    jar.parent.mkdir()
    jar.write_bytes(b"one")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    found = [ClassArchive.of(JAVA).file, ClassArchive.of(JAVA.replace("15", "16")).file]
    jar.write_bytes(b"another")
    found.append(ClassArchive.of(JAVA).file)
    assert len(set(found)) == 3


def test_a_jvm_that_does_not_end_well_leaves_nothing(cache: Path) -> None:
    archive = ClassArchive.of(JAVA)

    def interrupted() -> None:
        with archive.recording(lambda: True) as options:
            write(options)
            raise KeyboardInterrupt

    with archive.recording(lambda: True):
        pass
    with archive.recording(lambda: False) as options:
        write(options)
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (os.listdir(cache), archive.options) == ([], [])


def test_what_a_killed_run_has_left_is_removed_later(cache: Path) -> None:
    archive = ClassArchive.of(JAVA)
    killed = archive.file.with_suffix(".1")
    killed.mkdir(parents=True)
    (killed / "classes.jsa").write_bytes(b"half")
    with archive.recording(lambda: True):
        assert killed.exists()
    os.utime(killed, (0, 0))
    with archive.recording(lambda: True):
        assert not killed.exists()


def test_a_cache_that_cannot_be_written_is_no_error(cache: Path) -> None:
    cache.parent.write_text("a file")
    with ClassArchive.of(JAVA).recording(lambda: True) as options:
        assert options == []
    assert not ClassArchive.of(JAVA).record_in_background()


def test_one_process_records_in_the_background(cache: Path, started: list[list[str]]) -> None:
    archive = ClassArchive.of(JAVA)
    assert [archive.record_in_background() for _ in range(3)] == [True, False, False]
    assert [command[-3:] for command in started] == [[sys.executable, "-m", class_recorder.__name__]]
    archive.file.write_bytes(b"classes")
    archive.log.unlink()
    assert not archive.record_in_background()


def test_recording_that_failed_is_tried_again_a_day_later(cache: Path, started: list[list[str]]) -> None:
    archive = ClassArchive.of(JAVA)
    assert archive.record_in_background()
    yesterday = time.time() - 86_401
    os.utime(archive.log, (yesterday, yesterday))
    assert archive.record_in_background()
    assert len(started) == 2
    assert time.time() - archive.log.stat().st_mtime < 3600


def test_the_process_in_the_background_removes_its_log(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_recorder, "require_java", lambda: Java(Path("java"), JAVA))
    archive = ClassArchive.of(JAVA)
    archive.log.parent.mkdir(parents=True)
    archive.log.touch()

    def fail(given: ClassArchive) -> None:
        raise RuntimeError(given.file.name)

    monkeypatch.setattr(class_recorder, "record", fail)
    with pytest.raises(RuntimeError, match=archive.file.name):
        class_recorder.main()
    monkeypatch.setattr(class_recorder, "record", lambda given: None)
    with pytest.raises(SystemExit, match="no archive was recorded"):
        class_recorder.main()
    assert archive.log.exists()
    monkeypatch.setattr(class_recorder, "record", lambda given: given.file.write_bytes(b"classes"))
    class_recorder.main()
    assert os.listdir(cache) == [archive.file.name]
