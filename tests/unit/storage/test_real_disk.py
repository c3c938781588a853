"""The real disk: writes that stop half-way, ranges of deleted files, replacement, locks."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.storage.disk import RealDisk


def _partial(real_write: Callable[[int, memoryview], int], fail_after: int) -> Callable[[int, memoryview], int]:
    calls = 0

    def write(descriptor: int, data: memoryview) -> int:
        nonlocal calls
        calls += 1
        if calls > fail_after:
            raise OSError(28, "No space left on device")
        return real_write(descriptor, data[:3])

    return write


def test_an_append_goes_on_after_partial_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealDisk().open(str(tmp_path / "file"), create=True)
    monkeypatch.setattr("os.write", _partial(os.write, 100))
    assert file.append(b"0123456789") == 0
    assert file.append(b"abc") == 10
    assert (file.read(0, 100), file.size()) == (b"0123456789abc", 13)


def test_an_append_that_fails_half_way_leaves_the_old_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealDisk().open(str(tmp_path / "file"), create=True)
    file.append(b"before")
    with monkeypatch.context() as patch:
        patch.setattr("os.write", _partial(os.write, 2))
        with pytest.raises(OSError, match="No space"):
            file.append(b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"before"
    assert file.append(b"!") == 6


def test_a_removed_file_is_readable_until_nobody_holds_it(tmp_path: Path) -> None:
    disk = RealDisk()
    file = disk.open(str(tmp_path / "file"), create=True)
    file.append(b"still here")
    descriptor = file.fileno()
    disk.remove(str(tmp_path / "file"))
    assert file.read(6, 10) == b"here"
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_what_was_just_written_is_cached(tmp_path: Path) -> None:
    file = RealDisk().open(str(tmp_path / "file"), create=True)
    file.append(bytes(300_000))
    assert file.is_cached(0, 300_000)
    assert file.is_cached(10, 0)


def test_a_file_system_that_cannot_tell_counts_as_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealDisk().open(str(tmp_path / "file"), create=True)
    file.append(b"x")

    def answer(error: OSError) -> Callable[..., int]:
        def preadv(*_: object) -> int:
            raise error

        return preadv

    monkeypatch.setattr("os.preadv", answer(OSError(95, "Operation not supported")), raising=False)
    assert file.is_cached(0, 1)
    monkeypatch.setattr("os.preadv", answer(BlockingIOError(11, "would wait")), raising=False)
    if hasattr(os, "RWF_NOWAIT"):
        assert not file.is_cached(0, 1)


def test_replacing_leaves_no_trace_of_the_old_content(tmp_path: Path) -> None:
    disk = RealDisk()
    (tmp_path / "file.tmp").write_bytes(b"from a crash, and longer than what follows")
    disk.replace(str(tmp_path / "file"), b"old")
    disk.replace(str(tmp_path / "file"), b"new")
    assert disk.read_bytes(str(tmp_path / "file")) == b"new"
    assert disk.list_dir(str(tmp_path)) == ["file"]


def test_a_lock_has_one_holder(tmp_path: Path) -> None:
    disk, path = RealDisk(), str(tmp_path / ".lock")
    release = disk.lock(path)
    assert release is not None
    assert disk.lock(path) is None
    release()
    again = disk.lock(path)
    assert again is not None
    again()
