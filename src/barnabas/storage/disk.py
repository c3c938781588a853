"""The real disk: files by descriptor, appended with plain writes, read by position.

A `DiskFile` has one writer, the event loop; reads, `sync` and `is_cached` may run in any thread. It closes its
descriptor when nobody refers to it any more, so a range of a file that was deleted stays readable for whoever holds
the file.

A crash of the process loses nothing that `append` returned from; a power cut may lose everything since the last
`sync`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # Python 3.12's name for the buffer protocol

_PROBE_STRIDE = 64 * 1024  # the page cache is filled and evicted in runs, so a probe per run tells enough
_CANNOT_TELL = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
_CLOSED = -1


def _sync_descriptor(descriptor: int) -> None:
    """Data down to the medium: `fdatasync`, or on macOS the call that empties the drive's cache too."""
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(descriptor)


class DiskFile:
    """One open file of a `RealDisk`."""

    __slots__ = ("_descriptor", "_size", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size

    def size(self) -> int:
        return self._size

    def append(self, data: Buffer) -> int:
        start, size = self._size, len(data)
        written = os.write(self._descriptor, data)
        if written != size:
            self._append_rest(memoryview(data), written)
        self._size = start + size
        return start

    def _append_rest(self, view: memoryview, written: int) -> None:
        """Go on after a partial write; whatever fails, the file ends where it ended before."""
        try:
            while written < len(view):
                written += os.write(self._descriptor, view[written:])
        except OSError:
            os.ftruncate(self._descriptor, self._size)
            raise

    def read(self, position: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, position)
        if 0 < len(data) < size:
            while more := os.pread(self._descriptor, size - len(data), position + len(data)):
                data += more
        return data

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)
        self._size = size

    def sync(self) -> None:
        _sync_descriptor(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor

    if hasattr(os, "preadv") and hasattr(os, "RWF_NOWAIT"):

        def is_cached(self, position: int, size: int) -> bool:
            descriptor, byte, nowait = self._descriptor, [bytearray(1)], os.RWF_NOWAIT
            try:
                for probe in range(position, position + size, _PROBE_STRIDE):
                    os.preadv(descriptor, byte, probe, nowait)
                os.preadv(descriptor, byte, max(position + size - 1, position), nowait)
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno in _CANNOT_TELL:
                    return True
                raise
            return True

    else:

        def is_cached(self, position: int, size: int) -> bool:
            return True

    def close(self) -> None:
        if self._descriptor != _CLOSED:
            os.close(self._descriptor)
            self._descriptor = _CLOSED

    def __del__(self) -> None:
        self.close()


class RealDisk:
    """The operating system's file system."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return DiskFile(path, os.open(path, flags, 0o644))

    def read_bytes(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def replace(self, path: str, data: bytes) -> None:
        temporary = f"{path}.tmp"
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.append(data)
            file.sync()
        finally:
            file.close()
        os.replace(temporary, path)
        self.sync_dir(os.path.dirname(path))

    def list_dir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def space(self, path: str) -> tuple[int, int]:
        volume = os.statvfs(path)
        return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize

    def lock(self, path: str) -> Callable[[], None] | None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None

        lock = DiskFile(path, descriptor)  # which closes once, however often it is told to
        return lock.close
