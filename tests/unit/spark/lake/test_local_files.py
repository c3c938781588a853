"""Local files do for a lake what Hadoop's file systems do, without the JVM."""

from __future__ import annotations

import errno
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from barnabas.spark.lake.errors import LakeError
from barnabas.spark.lake.filesystem import Listed
from barnabas.spark.lake.local_files import LocalFiles


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    return LocalFiles(str(tmp_path / "lake"))


def without_hard_links(*_: Any) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")


def test_written_files_are_listed_read_and_deleted(files: LocalFiles, tmp_path: Path) -> None:
    assert files.root == files.full("") == f"file:{tmp_path}/lake"
    assert files.list("") == files.list("a") == []
    files.write("a/b/one", b"first")
    files.write("a/two", b"second")
    assert files.list("a") == [Listed("b", 0, True), Listed("two", 6, False)]
    assert (files.read("a/b/one"), files.exists("a/b"), files.exists("c")) == (b"first", True, False)
    files.delete("a/b")
    files.delete("a/b")
    files.delete("a/two")
    assert files.list("a") == []


@pytest.mark.parametrize("has_links", [True, False])
def test_rename_creates_directories_and_keeps_an_existing_target(
    files: LocalFiles, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    if not has_links:
        monkeypatch.setattr(os, "link", without_hard_links)
    files.write("staging/one", b"first")
    files.write("staging/two", b"second")
    assert files.rename("staging/one", "deep/down/file")
    assert not files.rename("staging/two", "deep/down/file")
    assert (files.read("deep/down/file"), files.read("staging/two")) == (b"first", b"second")
    assert not files.exists("staging/one")
    assert files.rename("deep/down", "elsewhere")
    assert not files.rename("staging", "elsewhere")
    assert files.read("elsewhere/file") == b"first"


def test_of_many_renames_to_one_name_a_single_one_succeeds(files: LocalFiles) -> None:
    for number in range(16):
        files.write(f"staging/{number}", str(number).encode())
    with ThreadPoolExecutor(16) as threads:
        done = list(threads.map(lambda number: files.rename(f"staging/{number}", "manifest/1"), range(16)))
    assert done.count(True) == 1
    assert files.read("manifest/1") == str(done.index(True)).encode()
    assert len(files.list("staging")) == 15


def test_checksums_of_hadoop_are_hidden_and_go_with_their_files(files: LocalFiles, tmp_path: Path) -> None:
    for name in ("old", "new", "gone"):
        files.write(name, b"x")
        (tmp_path / f"lake/.{name}.crc").write_bytes(b"checksum")
    assert [listed.name for listed in files.list("")] == ["gone", "new", "old"]
    files.delete("gone")
    files.delete("new")
    (tmp_path / "lake/.new.crc").write_bytes(b"checksum")
    assert files.rename("old", "new")
    files.write("written", b"x")
    assert sorted(os.listdir(tmp_path / "lake")) == ["new", "written"]


def test_a_directory_that_changes_while_it_is_deleted_is_deleted(
    files: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write("staging/file", b"x")
    remove, failures = shutil.rmtree, [errno.ENOTEMPTY, errno.ENOENT]

    def disturbed(place: str) -> None:
        if failures:
            code = failures.pop()
            raise OSError(code, os.strerror(code))
        remove(place)

    monkeypatch.setattr(shutil, "rmtree", disturbed)
    files.delete("staging")
    assert (failures, files.exists("staging")) == ([], False)


def test_errors_name_the_action_the_path_and_the_cause(files: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file")
    assert files.list("below") == []
    for action in (lambda: files.write("below/x", b""), lambda: files.rename("x", "below/x"), lambda: files.read("x")):
        with pytest.raises(LakeError, match=r"cannot (write|rename|read) file:.*/lake/.*(exists|directory)"):
            action()
