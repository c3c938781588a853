"""The file systems that tasks write to by themselves, without a JVM: which there are, by the scheme of a lake's path.

The driver reaches a lake through `filesystem`, which knows every scheme; where tasks cannot write, Spark does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from barnabas.spark.lake.filesystem import FileSystem, HadoopFileSystem
from barnabas.spark.lake.local_files import SCHEME

if TYPE_CHECKING:
    import pyarrow


class TaskFiles(Protocol):
    """A lake's directory for tasks; is pickled for them. Paths are absolute, and have no scheme."""

    @property
    def root(self) -> str:
        """The path of the lake's directory."""

    def create(self, path: str) -> pyarrow.NativeFile:
        """A new file, in a directory that is made if need be."""

    def open(self, path: str) -> pyarrow.NativeFile:
        """A file that is to be read."""


@dataclass(frozen=True, slots=True)
class WrittenBySpark:
    """Stands for a lake that tasks cannot write to."""

    reason: str


@dataclass(frozen=True, slots=True)
class LocalTaskFiles:
    root: str

    def create(self, path: str) -> pyarrow.NativeFile:
        import pyarrow

        os.makedirs(os.path.dirname(path), exist_ok=True)
        return pyarrow.OSFile(path, "wb")

    def open(self, path: str) -> pyarrow.NativeFile:
        import pyarrow

        return pyarrow.OSFile(path, "rb")


def task_files(fs: FileSystem) -> TaskFiles | WrittenBySpark:
    """How tasks write to a lake's directory."""
    scheme = fs.root.partition(":")[0]
    found = _BY_SCHEME.get(scheme)
    return WrittenBySpark(f"files on {scheme} are written by Spark") if found is None else found(fs)


def _local(fs: FileSystem) -> TaskFiles:
    return LocalTaskFiles(fs.root.removeprefix(SCHEME))


def _hdfs(fs: FileSystem) -> TaskFiles | WrittenBySpark:
    from barnabas.spark.lake.hdfs_files import hdfs_files

    assert isinstance(fs, HadoopFileSystem)
    return hdfs_files(fs)


_BY_SCHEME: Mapping[str, Callable[[FileSystem], TaskFiles | WrittenBySpark]] = {"file": _local, "hdfs": _hdfs}
