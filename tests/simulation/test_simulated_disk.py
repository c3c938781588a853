from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from barnabas.core.seams import Disk, File
from tests.simulation.simulated_disk import PAGE_BYTES, SECTOR_BYTES, SimulatedDisk
from tests.simulation.simulated_process import Process, ProcessKilled
from tests.simulation.virtual_loop import VirtualLoop

OLD = bytes(range(256)) * 8
NEW = bytes(reversed(range(256))) * 8


def a_disk(seed: int = 0) -> SimulatedDisk:
    disk = SimulatedDisk(random.Random(seed))
    disk.make_dirs("/data/orders-0")
    disk.sync_dir("/")
    disk.sync_dir("/data")
    return disk


def synced_file(disk: SimulatedDisk, path: str = "/data/orders-0/0.log", data: bytes = OLD) -> File:
    file = disk.open(path, create=True)
    file.append(data)
    file.sync()
    disk.sync_dir(path.rpartition("/")[0])
    return file


def after_power_cuts(act: Callable[[SimulatedDisk], None], look: Callable[[SimulatedDisk], bytes]) -> list[bytes]:
    """What is found after a power cut, for many seeds."""
    found = []
    for seed in range(300):
        disk = a_disk(seed)
        act(disk)
        disk.power_cut()
        found.append(look(disk))
    return found


def test_it_is_a_disk_with_files() -> None:
    disk: Disk = a_disk()
    file: File = disk.open("/data/orders-0/0.log", create=True)
    assert [file.append(b"abc"), file.append(memoryview(b"defg"))] == [0, 3]
    assert (file.size(), file.read(2, 3), file.read(5, 100)) == (7, b"cde", b"fg")
    file.truncate(4)
    assert file.append(b"X") == 4
    assert disk.read_bytes("/data/orders-0/0.log") == b"abcdX"
    assert disk.size("/data/orders-0/0.log") == 5
    disk.rename("/data/orders-0/0.log", "/data/orders-0/0.log.deleted")
    assert file.read(0, 9) == b"abcdX"
    disk.replace("/data/orders-0/checkpoint", b"0\n")
    assert disk.list_dir("/data/orders-0") == ["0.log.deleted", "checkpoint"]
    disk.remove("/data/orders-0/0.log.deleted")
    assert not disk.exists("/data/orders-0/0.log.deleted")
    disk.rename("/data/orders-0", "/data/orders-0.x-delete")
    disk.remove_tree("/data/orders-0.x-delete")
    assert disk.list_dir("/data") == []
    file.close()
    with pytest.raises(OSError, match="closed"):
        file.read(0, 1)


def test_errors_are_those_of_a_file_system() -> None:
    disk = a_disk()
    with pytest.raises(FileNotFoundError):
        disk.open("/data/orders-0/0.log")
    with pytest.raises(FileNotFoundError):
        disk.open("/nowhere/0.log", create=True)
    with pytest.raises(IsADirectoryError):
        disk.read_bytes("/data")
    synced_file(disk)
    with pytest.raises(NotADirectoryError):
        disk.list_dir("/data/orders-0/0.log")
    with pytest.raises(FileNotFoundError):
        disk.remove("/data/nothing")


def test_synced_content_under_synced_entries_survives_a_power_cut() -> None:
    def act(disk: SimulatedDisk) -> None:
        synced_file(disk).append(NEW)

    found = after_power_cuts(act, lambda disk: disk.read_bytes("/data/orders-0/0.log"))
    assert all(data.startswith(OLD) for data in found)


def test_of_unsynced_appends_a_power_cut_leaves_anything() -> None:
    def act(disk: SimulatedDisk) -> None:
        synced_file(disk).append(NEW)

    tails = [d[len(OLD) :] for d in after_power_cuts(act, lambda disk: disk.read_bytes("/data/orders-0/0.log"))]
    assert all(len(tail) <= len(NEW) for tail in tails)
    assert b"" in tails
    assert NEW in tails
    torn = [tail for tail in tails if tail and tail != NEW and NEW.startswith(tail)]
    assert any(len(tail) % 512 for tail in torn)
    assert any(len(tail) % 512 == 0 for tail in torn)
    assert any(tail.endswith(bytes(20)) for tail in tails), "the size without the bytes"
    assert any(len(tail) == len(NEW) and tail.endswith(NEW[-20:]) and tail != NEW for tail in tails), "a hole"


def test_an_unsynced_truncation_may_be_undone_by_a_power_cut_but_not_a_synced_one() -> None:
    def cut(disk: SimulatedDisk) -> None:
        file = synced_file(disk)
        file.truncate(100)
        file.truncate(50)

    def cut_and_sync(disk: SimulatedDisk) -> None:
        file = synced_file(disk)
        file.truncate(100)
        file.sync()

    def look(disk: SimulatedDisk) -> bytes:
        return disk.read_bytes("/data/orders-0/0.log")

    assert set(after_power_cuts(cut, look)) == {OLD, OLD[:50]}
    assert set(after_power_cuts(cut_and_sync, look)) == {OLD[:100]}


def test_of_unsynced_entries_a_power_cut_keeps_the_first_few() -> None:
    def act(disk: SimulatedDisk) -> None:
        for name in "abc":
            disk.open(f"/data/orders-0/{name}", create=True)
        disk.rename("/data/orders-0/a", "/data/orders-0/d")

    found = after_power_cuts(act, lambda disk: "".join(disk.list_dir("/data/orders-0")).encode())
    assert set(found) == {b"", b"a", b"ab", b"abc", b"bcd"}


def test_a_removal_that_was_not_synced_may_come_back_whole() -> None:
    def act(disk: SimulatedDisk) -> None:
        synced_file(disk)
        disk.remove_tree("/data/orders-0")

    def look(disk: SimulatedDisk) -> bytes:
        if not disk.exists("/data/orders-0"):
            return b"gone"
        return b"empty" if not disk.list_dir("/data/orders-0") else disk.read_bytes("/data/orders-0/0.log")

    assert set(after_power_cuts(act, look)) == {b"gone", b"empty", OLD}


def test_a_replaced_file_is_old_or_new_and_then_durable() -> None:
    def act(disk: SimulatedDisk) -> None:
        disk.replace("/data/checkpoint", OLD)
        disk.replace("/data/checkpoint", NEW)

    assert set(after_power_cuts(act, lambda disk: disk.read_bytes("/data/checkpoint"))) == {NEW}


def test_a_killed_process_leaves_what_it_wrote_and_loses_what_it_held() -> None:
    loop, disk = VirtualLoop(), a_disk()
    process, other = Process(loop, "one"), Process(loop, "two")
    file = process.call(disk.open, "/data/orders-0/0.log", create=True)
    file.append(OLD)
    assert process.call(disk.lock, "/data/.lock") is not None
    assert other.call(disk.lock, "/data/.lock") is None
    process.kill()
    release = other.call(disk.lock, "/data/.lock")
    assert release is not None
    release()
    assert other.call(disk.lock, "/data/.lock") is not None
    with pytest.raises(ProcessKilled):
        file.append(NEW)
    with pytest.raises(ProcessKilled):
        process.call(disk.list_dir, "/data")
    assert disk.read_bytes("/data/orders-0/0.log") == OLD
    loop.close()


def test_a_process_killed_in_an_append_has_written_whole_pages() -> None:
    sizes = set()
    for seed in range(50):
        loop, disk = VirtualLoop(), a_disk(seed)
        process = Process(loop, "one")
        file = process.call(disk.open, "/data/orders-0/0.log", create=True)
        file.append(b"x" * 100)

        def kill(operation: str, path: str, process: Process = process) -> None:
            process.kill()
            raise ProcessKilled(process.name)

        disk.watcher = kill
        with pytest.raises(ProcessKilled):
            file.append(b"y" * (3 * PAGE_BYTES))
        sizes.add(disk.size("/data/orders-0/0.log"))
        loop.close()
    assert sizes == {100, PAGE_BYTES, 2 * PAGE_BYTES, 3 * PAGE_BYTES}


def test_an_operation_can_be_made_to_fail_without_effect() -> None:
    disk = a_disk()
    file = synced_file(disk)

    def fail(operation: str, path: str) -> None:
        raise OSError(errno.EIO, f"no {operation}", path)

    disk.watcher = fail
    for change in (lambda: file.append(NEW), lambda: disk.open("/data/new", create=True), file.sync):
        with pytest.raises(OSError, match="no "):
            change()
    disk.watcher = None
    assert file.size() == len(OLD)
    assert not disk.exists("/data/new")


def test_a_full_disk_may_take_the_beginning_of_a_write() -> None:
    sizes = set()
    for seed in range(100):
        disk = a_disk(seed)
        file = synced_file(disk, data=b"x" * 100)

        def fail(operation: str, path: str) -> None:
            if operation == "append":
                raise OSError(errno.ENOSPC, f"no space for {operation}", path)

        disk.watcher = fail
        with pytest.raises(OSError, match="no space"):
            file.append(b"y" * (3 * SECTOR_BYTES))
        sizes.add(file.size())
    assert sizes == {100, SECTOR_BYTES, 2 * SECTOR_BYTES, 3 * SECTOR_BYTES}


def test_cold_ranges_are_drawn_from_the_seed() -> None:
    disk = SimulatedDisk(random.Random(0), cold=0.5)
    file = disk.open("/f", create=True)
    assert {file.is_cached(0, 1) for _ in range(50)} == {True, False}
    assert all(SimulatedDisk(random.Random(0)).open("/f", create=True).is_cached(0, 1) for _ in range(50))
