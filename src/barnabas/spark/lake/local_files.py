"""A lake's directory on this machine, or on a file system that is mounted here, reached without the JVM.

Hadoop keeps the checksum of a file beside it, as `.NAME.crc`, and rejects a file that does not match it. Nothing here
writes checksums (the manifest has digests of its own), but whatever replaces or removes a file removes its checksum.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from barnabas.spark.lake.errors import LakeError
from barnabas.spark.lake.filesystem import Listed

SCHEME = "file:"
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV)
"""How file systems without hard links refuse one."""
_MOST_TRIES = 10


class LocalFiles:
    def __init__(self, directory: str) -> None:
        """The directory is an absolute path."""
        self._directory = directory.rstrip("/")
        self.root = SCHEME + self._directory

    def list(self, path: str) -> list[Listed]:
        with _explained(f"list {self.full(path)}"):
            try:
                with os.scandir(self._path(path)) as entries:
                    found = [
                        Listed(entry.name, 0 if entry.is_dir() else entry.stat().st_size, entry.is_dir())
                        for entry in entries
                        if not _is_checksum(entry.name)
                    ]
            except (FileNotFoundError, NotADirectoryError):
                return []
        return sorted(found, key=lambda listed: listed.name)

    def exists(self, path: str) -> bool:
        return os.path.exists(self._path(path))

    def read(self, path: str) -> bytes:
        with _explained(f"read {self.full(path)}"), open(self._path(path), "rb") as file:
            return file.read()

    def write(self, path: str, data: bytes) -> None:
        place = self._path(path)
        with _explained(f"write {self.full(path)}"):
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with open(place, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            _remove_checksum(place)

    def rename(self, source: str, target: str) -> bool:
        """Of a file the rename is one step: a link fails where the target exists, on every machine that mounts it."""
        old, new = self._path(source), self._path(target)
        with _explained(f"rename {self.full(source)} to {self.full(target)}"):
            os.makedirs(os.path.dirname(new), exist_ok=True)
            try:
                if os.path.isdir(old) or not _link(old, new):
                    if os.path.lexists(new):
                        return False
                    os.rename(old, new)
            except FileExistsError:
                return False
            for place in (old, new):
                _remove_checksum(place)
        return True

    def delete(self, path: str) -> None:
        place = self._path(path)
        with _explained(f"delete {self.full(path)}"):
            if os.path.isdir(place):
                _remove_directory(place)
            else:
                with suppress(FileNotFoundError):
                    os.unlink(place)
                _remove_checksum(place)

    def full(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def _path(self, path: str) -> str:
        return f"{self._directory}/{path}" if path else self._directory


def _link(old: str, new: str) -> bool:
    """False if the file system has no hard links."""
    try:
        os.link(old, new)
    except OSError as error:
        if error.errno in _NO_LINKS:
            return False
        raise
    os.unlink(old)
    return True


def _remove_directory(place: str) -> None:
    """Another run may remove it at the same time, and a task that has outlived its job may add to it."""
    for tries_left in reversed(range(_MOST_TRIES)):
        try:
            shutil.rmtree(place)
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or not tries_left:
                raise
        if not os.path.isdir(place):
            return


def _is_checksum(name: str) -> bool:
    return name.startswith(".") and name.endswith(".crc")


def _remove_checksum(place: str) -> None:
    directory, name = os.path.split(place)
    with suppress(FileNotFoundError):
        os.unlink(f"{directory}/.{name}.crc")


@contextmanager
def _explained(action: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LakeError(f"cannot {action}: {error.strerror or error}") from error
