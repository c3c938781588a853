"""When a broker may say that it has lost nothing since its last process."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from barnabas.broker.previous_epoch import forget_epoch, note_epoch, previous_epoch
from barnabas.storage.directory import LogDirectory
from barnabas.storage.disk import RealDisk

UNKNOWN = -1
BOOT, NEXT_BOOT = "first", "second"


def open_directories(path: Path, names: str = "ab") -> list[LogDirectory]:
    directories = [LogDirectory(RealDisk(), str(path / name)) for name in names]
    for directory in directories:
        directory.open(1, "cluster", Random(1))
    return directories


def live(path: Path, epoch: int, *, is_clean: bool) -> None:
    """The life of a process under an epoch, and its end."""
    directories = open_directories(path)
    for directory in directories:
        note_epoch(RealDisk(), directory, BOOT, epoch)
        if is_clean:
            directory.mark_clean(epoch)
        directory.release()


def told(path: Path, boot_id: str, names: str = "ab") -> int:
    directories = open_directories(path, names)
    try:
        return previous_epoch(RealDisk(), directories, boot_id)
    finally:
        for directory in directories:
            directory.release()


@pytest.mark.parametrize(
    ("is_clean", "boot_id", "expected"),
    [
        (True, BOOT, 7),
        (True, NEXT_BOOT, 7),
        (True, "", 7),
        (False, BOOT, 7),
        (False, NEXT_BOOT, UNKNOWN),
        (False, "", UNKNOWN),
    ],
)
def test_a_clean_stop_or_the_same_boot_loses_nothing(
    tmp_path: Path, is_clean: bool, boot_id: str, expected: int
) -> None:
    live(tmp_path, 3, is_clean=True)
    live(tmp_path, 7, is_clean=is_clean)
    assert told(tmp_path, boot_id) == expected


def test_the_first_process_has_none_before_it(tmp_path: Path) -> None:
    assert told(tmp_path, BOOT) == UNKNOWN


def test_a_new_directory_stands_for_one_that_is_lost(tmp_path: Path) -> None:
    live(tmp_path, 7, is_clean=True)
    assert told(tmp_path, BOOT, "abc") == UNKNOWN


def test_a_note_that_makes_no_sense_is_none(tmp_path: Path) -> None:
    live(tmp_path, 7, is_clean=False)
    (tmp_path / "a" / ".barnabas_boot").write_bytes(b'{"bootId":"fi')
    assert told(tmp_path, BOOT) == UNKNOWN


def test_a_disk_that_failed_has_not_kept_everything(tmp_path: Path) -> None:
    directories = open_directories(tmp_path)
    for directory in directories:
        note_epoch(RealDisk(), directory, BOOT, 7)
    forget_epoch(RealDisk(), directories[1])
    for directory in directories:
        directory.release()
    assert told(tmp_path, BOOT) == UNKNOWN
