"""Keeps the classes of Spark's JVM in an archive, from which the next JVM starts in half the time.

The archive (class data sharing) holds classes as they are in a JVM's memory: found, parsed and verified. It fits one
Java and one set of Spark's jars, and is named after both; a JVM ignores an archive that does not fit. The first run of
a pipeline records it: its JVM writes the archive when it ends, which takes some seconds, once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_LONGEST_WRITE_S = 120
_ABANDONED_AFTER_S = 3600
_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""Warnings of the JVM would go to standard output, among them one for each class that it does not archive."""


@dataclass(frozen=True, slots=True)
class ClassArchive:
    file: Path

    @classmethod
    def of(cls, java_version: str) -> ClassArchive:
        """`java_version` is what `java -version` prints."""
        from pyspark.find_spark_home import _find_spark_home

        with os.scandir(Path(_find_spark_home()) / "jars") as jars:
            found = sorted(f"{jar.name} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in jars)
        digest = hashlib.sha256("\n".join([java_version, *found]).encode()).hexdigest()[:16]
        return cls(_cache_directory() / f"spark-classes-{digest}.jsa")

    @property
    def options(self) -> list[str]:
        """For a JVM that starts from the archive, if there is one."""
        return [f"-XX:SharedArchiveFile={self.file}", *_QUIET] if self.file.exists() else []

    @contextmanager
    def recording(self, end_jvm: Callable[[], bool]) -> Iterator[list[str]]:
        """The options of a JVM that writes the archive when it ends; none where the cache cannot be written.

        `end_jvm` ends it, and says whether it has ended well: then the archive is whole.
        """
        directory = self.file.with_suffix(f".{os.getpid()}")
        try:
            self._remove_abandoned()
            directory.mkdir(parents=True)
        except OSError:
            yield []
            return
        try:
            partial = directory / "classes.jsa"
            yield [f"-XX:ArchiveClassesAtExit={partial}", *_QUIET]
            if end_jvm():
                with suppress(OSError):  # without an archive the next start is slower, and nothing else
                    partial.replace(self.file)
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _remove_abandoned(self) -> None:
        """What recordings have left that were killed."""
        for left in self.file.parent.glob("spark-classes-*.*"):
            if left.is_dir() and time.time() - left.stat().st_mtime > _ABANDONED_AFTER_S:
                shutil.rmtree(left, ignore_errors=True)


def end_jvm() -> bool:
    """End the JVM of a session that was stopped, and say whether it has ended well."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:  # of a JVM that somebody else has started
        return False
    gateway.shutdown()
    process.stdin.close()
    SparkContext._gateway = SparkContext._jvm = None
    try:
        return bool(process.wait(_LONGEST_WRITE_S) == 0)
    except subprocess.TimeoutExpired:
        process.kill()
        return False


def _cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barnabas"
