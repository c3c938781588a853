"""A disk in memory that knows what would survive: for the content of files and for the entries of directories alike.

Two states are kept of everything: what the processes of the machine see (the page cache), and what the device holds.
When a process is killed, what it wrote stays. When the power goes, `power_cut` leaves what was synced and, of the rest,
what a careless device might have: of a file's new bytes a part, cut anywhere, with a hole of zeros in it or garbage
after it; of a directory's changes the first few. A full disk takes the beginning of a write; as the real one does, it
takes that back, if it can. Renames stay within their directory, as those of a log do.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tests.simulation.simulated_process import Process, ProcessKilled, check_alive, current_process

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]

PAGE_BYTES = 4096
SECTOR_BYTES = 512

Watcher = Callable[[str, str], None]
"""Called with the operation and the path before each change and sync: to record it, to fail it with an OSError, or to
kill the process in it."""


class _Content:
    """The bytes of a file. Durable are `data[:kept]` and then `cut`: what un-synced truncations have taken off."""

    __slots__ = ("cut", "data", "kept")

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.kept = len(data)
        self.cut = b""

    def truncate(self, size: int) -> None:
        if size < self.kept:
            self.cut = bytes(self.data[size : self.kept]) + self.cut
            self.kept = size
        del self.data[size:]

    def sync(self) -> None:
        self.kept = len(self.data)
        self.cut = b""

    def lose_power(self, rng: random.Random) -> None:
        if self.cut and rng.random() < 0.5:
            self.data[self.kept :] = self.cut
        else:
            self.data[self.kept :] = _torn(bytes(self.data[self.kept :]), rng)
        self.sync()


class _Directory:
    """Names of files and directories, and the changes that the device does not know yet, in their order.

    A change is the entries that it sets (or, with None, removes) together: one for a creation or a removal, two for a
    rename.
    """

    __slots__ = ("durable", "entries", "unsynced")

    def __init__(self) -> None:
        self.entries: dict[str, _Node] = {}
        self.durable: dict[str, _Node] = {}
        self.unsynced: list[dict[str, _Node | None]] = []

    def change(self, change: dict[str, _Node | None]) -> None:
        _apply(self.entries, change)
        self.unsynced.append(change)

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.unsynced.clear()

    def lose_power(self, rng: random.Random) -> None:
        for change in self.unsynced[: rng.randint(0, len(self.unsynced))]:
            _apply(self.durable, change)
        self.entries = dict(self.durable)
        self.unsynced.clear()
        for name in sorted(self.entries):
            self.entries[name].lose_power(rng)


_Node = _Content | _Directory


def _apply(entries: dict[str, _Node], change: dict[str, _Node | None]) -> None:
    for name, node in change.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def _torn(unsynced: bytes, rng: random.Random) -> bytes:
    """What a power cut may leave of bytes that were written but not synced."""
    size = len(unsynced)
    if not size:
        return b""
    fate = rng.random()
    if fate < 0.25:
        return b""
    if fate < 0.4:
        return unsynced
    cut = rng.randint(0, size)
    if fate < 0.6:
        cut -= cut % SECTOR_BYTES
    left = unsynced[:cut]
    if fate < 0.8:
        return left
    if fate < 0.9:  # the size reached the device, the bytes did not
        lost = size - cut
        return left + (bytes(lost) if rng.random() < 0.5 else rng.randbytes(lost))
    hole = rng.randint(0, size - 1) // SECTOR_BYTES * SECTOR_BYTES  # later sectors were written before an earlier one
    end = min(hole + SECTOR_BYTES, size)
    return unsynced[:hole] + bytes(end - hole) + unsynced[end:]


class SimulatedFile:
    """A `File`. It belongs to the process that opened it."""

    __slots__ = ("_content", "_disk", "_is_open", "_process", "path")

    def __init__(self, disk: SimulatedDisk, path: str, content: _Content) -> None:
        self.path = path
        self._disk = disk
        self._content = content
        self._process = current_process()
        self._is_open = True

    def size(self) -> int:
        return len(self._opened().data)

    def append(self, data: Buffer) -> int:
        content = self._opened()
        position = len(content.data)
        try:
            self._disk.watch("append", self.path)
        except ProcessKilled:
            # The kernel copies page by page, and looks between two of them whether the process was killed.
            content.data += self._beginning(data, position, PAGE_BYTES)
            raise
        except OSError as error:
            if error.errno == errno.ENOSPC:
                content.data += self._beginning(data, position, SECTOR_BYTES)  # a block may be as small as that
                if self._disk.rng.random() < 0.5:  # else that has failed, too
                    self.truncate(position)
            raise
        content.data += data
        return position

    def _beginning(self, data: Buffer, position: int, unit_bytes: int) -> memoryview:
        """What was written before one of the boundaries that there are in every file."""
        boundaries = range(0, memoryview(data).nbytes + position % unit_bytes, unit_bytes)
        written = max(0, self._disk.rng.choice(boundaries or [0]) - position % unit_bytes)
        return memoryview(data).cast("B")[:written]

    def read(self, position: int, size: int) -> bytes:
        return bytes(self._opened().data[position : position + size])

    def truncate(self, size: int) -> None:
        content = self._opened()
        self._disk.watch("truncate", self.path)
        if size > len(content.data):
            raise OSError(errno.EINVAL, f"cannot truncate {len(content.data)} bytes to {size}", self.path)
        content.truncate(size)

    def sync(self) -> None:
        content = self._opened()
        self._disk.watch("sync", self.path)
        content.sync()

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a simulated file has no descriptor", self.path)

    def is_cached(self, position: int, size: int) -> bool:
        self._opened()
        return self._disk.rng.random() >= self._disk.cold

    def close(self) -> None:
        self._is_open = False

    def _opened(self) -> _Content:
        if self._process is not None and not self._process.alive:
            raise ProcessKilled(self._process.name)
        if not self._is_open:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        return self._content


class SimulatedDisk:
    """A `Disk`. `cold` is the share of ranges that a file says are not in the page cache."""

    def __init__(self, rng: random.Random, *, watcher: Watcher | None = None, cold: float = 0.0) -> None:
        self.rng = rng
        self.cold = cold
        self.watcher = watcher
        self._root = _Directory()
        self._locks: dict[str, _Lock] = {}

    def watch(self, operation: str, path: str) -> None:
        check_alive()
        if self.watcher is not None:
            self.watcher(operation, path)

    def power_cut(self) -> None:
        """Forget what was not synced. Whoever had files open must be dead by now."""
        self._root.lose_power(self.rng)

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        check_alive()
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if node is None and create:
            self.watch("create", path)
            node = _Content()
            directory.change({name: node})
        return SimulatedFile(self, path, self._content(path))

    def read_bytes(self, path: str) -> bytes:
        check_alive()
        return bytes(self._content(path).data)

    def replace(self, path: str, data: bytes) -> None:
        """In the steps of a real disk, between which a process may die and leave a temporary file behind."""
        file = self.open(f"{path}.tmp", create=True)
        file.truncate(0)
        file.append(data)
        file.sync()
        file.close()
        self.rename(file.path, path)
        self.sync_dir(path.rpartition("/")[0] or "/")

    def list_dir(self, path: str) -> list[str]:
        check_alive()
        return sorted(self._directory(path).entries)

    def exists(self, path: str) -> bool:
        check_alive()
        return self._find(path) is not None

    def size(self, path: str) -> int:
        check_alive()
        return len(self._content(path).data)

    def make_dirs(self, path: str) -> None:
        check_alive()
        node: _Node = self._root
        for name in _names(path):
            if not isinstance(node, _Directory):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            if name not in node.entries:
                self.watch("make_dirs", path)
                node.change({name: _Directory()})
            node = node.entries[name]

    def rename(self, old: str, new: str) -> None:
        directory, old_name = self._parent(old)
        target, new_name = self._parent(new)
        if directory is not target:
            raise OSError(errno.EXDEV, "a rename across directories is not simulated", old, None, new)
        node = self._existing(old)
        self.watch("rename", new)
        directory.change({old_name: None, new_name: node})

    def remove(self, path: str) -> None:
        directory, name = self._parent(path)
        self._content(path)
        self.watch("remove", path)
        directory.change({name: None})

    def remove_tree(self, path: str) -> None:
        directory, name = self._parent(path)
        for inner in sorted(self._directory(path).entries):
            inner_path = f"{path}/{inner}"
            remove = self.remove_tree if isinstance(self._find(inner_path), _Directory) else self.remove
            remove(inner_path)
        self.watch("remove", path)
        directory.change({name: None})

    def sync_dir(self, path: str) -> None:
        directory = self._directory(path)
        self.watch("sync_dir", path)
        directory.sync()

    def space(self, path: str) -> tuple[int, int]:
        return 1 << 40, 1 << 39

    def lock(self, path: str) -> Callable[[], None] | None:
        check_alive()
        if path in self._locks:
            return None
        self.open(path, create=True).close()
        lock = self._locks[path] = _Lock(self._locks, path)
        return lock.release

    def _find(self, path: str) -> _Node | None:
        node: _Node | None = self._root
        for name in _names(path):
            node = node.entries.get(name) if isinstance(node, _Directory) else None
        return node

    def _existing(self, path: str) -> _Node:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def _content(self, path: str) -> _Content:
        node = self._existing(path)
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._existing(path)
        if isinstance(node, _Content):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        above, _, name = path.rstrip("/").rpartition("/")
        return self._directory(above or "/"), name


class _Lock:
    def __init__(self, locks: dict[str, _Lock], path: str) -> None:
        self._locks = locks
        self._path = path
        self._process: Process | None = current_process()
        if self._process is not None:
            self._process.own(self)

    def release(self) -> None:
        if self._locks.get(self._path) is self:
            del self._locks[self._path]
        if self._process is not None:
            self._process.disown(self)

    def abandon(self, power_cut: bool) -> None:
        self.release()


def _names(path: str) -> Iterator[str]:
    return (name for name in path.split("/") if name)
