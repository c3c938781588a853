"""A lake's directory: what a lake needs of a file system, and any Hadoop file system through the JVM of Spark's driver.

Local directories are reached without the JVM (`local_files`), and the tests have a model that crashes between any two
steps. Paths are relative to the lake, with slashes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.spark.lake.errors import LakeError, ManifestDamaged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_IO_EXCEPTION = "java.io.IOException"


@dataclass(frozen=True, slots=True)
class Listed:
    name: str
    size: int
    is_directory: bool


class FileSystem(Protocol):
    """Errors of the file system are LakeErrors that say what was tried, where, and what the file system said."""

    @property
    def root(self) -> str:
        """The lake's directory, for messages."""

    def list(self, path: str) -> list[Listed]:
        """What is in a directory, by name; nothing if it does not exist."""

    def exists(self, path: str) -> bool: ...

    def read(self, path: str) -> bytes: ...

    def write(self, path: str, data: bytes) -> None:
        """A new file, in a directory that is made if need be. Others may see a part of it."""

    def rename(self, source: str, target: str) -> bool:
        """In one step, a file or a directory, into a directory that is made if need be. False if the target exists."""

    def delete(self, path: str) -> None:
        """A file, or a directory with all that is in it; nothing happens if it does not exist."""

    def full(self, path: str) -> str:
        """The path as Spark needs it."""


def open_filesystem(spark: SparkSession, root: str) -> FileSystem:
    """The file system that Hadoop finds by the scheme of the path, or by its configuration."""
    from barnabas.spark.lake.local_files import SCHEME, LocalFiles

    found = HadoopFileSystem(spark, root)
    return LocalFiles(found.root.removeprefix(SCHEME)) if found.root.startswith(SCHEME) else found


class HadoopFileSystem:
    """Whatever Hadoop knows by the scheme of the path: hdfs, file, s3a, abfs, gs."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        if not hasattr(spark, "_jvm"):
            raise LakeError("a lake needs a Spark session whose driver is in this process; Spark Connect has none")
        jvm: Any = spark._jvm
        context: Any = spark.sparkContext
        self.jvm = jvm
        self._path_class = jvm.org.apache.hadoop.fs.Path  # to find a class takes a call for each part of its name
        with explained(f"open {root}"):
            given = self._path_class(root)
            self.java = given.getFileSystem(context._jsc.hadoopConfiguration())
            self.java_root = self.java.makeQualified(given)
        self.root = str(self.java_root.toString())

    def list(self, path: str) -> list[Listed]:
        with explained(f"list {self.full(path)}"):
            where = self._path(path)
            if not self.java.exists(where):
                return []
            found = [
                Listed(str(status.getPath().getName()), int(status.getLen()), bool(status.isDirectory()))
                for status in self.java.listStatus(where)
            ]
        return sorted(found, key=lambda listed: listed.name)

    def exists(self, path: str) -> bool:
        with explained(f"look at {self.full(path)}"):
            return bool(self.java.exists(self._path(path)))

    def read(self, path: str) -> bytes:
        try:
            with explained(f"read {self.full(path)}"):
                stream = self.java.open(self._path(path))
                try:
                    return bytes(self.jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
                finally:
                    stream.close()
        except LakeError as problem:
            if "ChecksumException" in str(problem):
                raise ManifestDamaged(f"{self.full(path)} is cut off or was altered: its checksum is wrong") from None
            raise

    def write(self, path: str, data: bytes) -> None:
        with explained(f"write {self.full(path)}"):
            stream = self.java.create(self._path(path), True)
            try:
                stream.write(data)
                stream.hsync()
            finally:
                stream.close()

    def rename(self, source: str, target: str) -> bool:
        with explained(f"rename {self.full(source)} to {self.full(target)}"):
            place = self._path(target)
            if self.java.exists(place):
                return False
            self.java.mkdirs(place.getParent())
            if self.java.rename(self._path(source), place):
                return True
            if self.java.exists(place):
                return False
        raise LakeError(f"cannot rename {self.full(source)} to {self.full(target)}: the file system refused")

    def delete(self, path: str) -> None:
        with explained(f"delete {self.full(path)}"):
            self.java.delete(self._path(path), True)

    def full(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def _path(self, path: str) -> Any:
        return self._path_class(self.java_root, path) if path else self.java_root


@contextmanager
def explained(action: str) -> Iterator[None]:
    """What a file system could not do for us or for Spark, as one sentence; other failures go on as they are."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    try:
        yield
    except Py4JJavaError as error:
        cause = _innermost(error)
        if _IO_EXCEPTION not in _class_names(cause):
            raise
        said = str(cause.getMessage() or "").strip().partition("\n")[0]
        raise LakeError(f"cannot {action}: {cause.getClass().getSimpleName()}: {said}") from error


def _innermost(error: Any) -> Any:
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return cause


def _class_names(thrown: Any) -> Iterator[str]:
    kind = thrown.getClass()
    while kind is not None:
        yield str(kind.getName())
        kind = kind.getSuperclass()
