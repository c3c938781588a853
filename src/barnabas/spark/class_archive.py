"""Keeps the classes of Spark's JVM in an archive, from which the next JVM starts in half the time.

The archive (class data sharing) holds classes as they are in a JVM's memory: found, parsed and verified. It fits one
Java and one set of Spark's jars, and is named after both; a JVM ignores an archive that does not fit. A JVM writes it
when it ends, which takes twenty seconds, so the JVM of a process in the background does that after the first run of a
pipeline (`pipeline.class_recorder`). That process logs to a file beside the archive, which also keeps others from
starting, and which stays if recording fails: then it is tried again a day later.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

RECORDER = "barnabas.spark.pipeline.class_recorder"
_LONGEST_WRITE_S = 300
_ABANDONED_AFTER_S = 3600
_RETRIED_AFTER_S = 86_400
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

    @property
    def log(self) -> Path:
        """Of the process that records the archive; is there while it runs, and after it has failed."""
        return self.file.with_suffix(".log")

    def record_in_background(self) -> bool:
        """Start the process that records the archive, and say so; not where the archive or another process is."""
        if self.file.exists():
            return False
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            if self.log.exists() and time.time() - self.log.stat().st_mtime > _RETRIED_AFTER_S:
                self.log.unlink(missing_ok=True)
            with self.log.open("x") as log:
                # By a shell that ends at once, so that no child of this process is left for it to wait for.
                command = ["sh", "-c", 'nice -n 19 "$@" &', "sh", sys.executable, "-m", RECORDER]
                subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, check=False
                )
        except OSError:  # without an archive the next start is slower, and nothing else
            return False
        return True

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
