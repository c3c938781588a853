"""One of the `log.dirs`: which partitions it holds, its checkpoints, and whether its disk still works.

    <log dir>/.lock, meta.properties, the checkpoints, .kafka_cleanshutdown
    <log dir>/<topic>-<partition>/                  a log
    <log dir>/<topic>-<partition>.<id>-delete/      a log that is being removed
    <log dir>/<topic>-<partition>.<id>-stray/       a log that is of no partition of this broker, for a human to judge

A directory is locked while a broker uses it. The mark of a clean stop is taken away before anything is opened, so a
broker that dies at any later moment finds none. Methods block; the manager calls them in threads, one at a time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING

from barnabas.core import ids, logs
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.seams import Disk
from barnabas.storage import checkpoints
from barnabas.storage.checkpoints import TopicPartition
from barnabas.storage.recovery import LogState

if TYPE_CHECKING:
    from barnabas.storage.log import Log

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
_LOCK = ".lock"
_PARTITION = re.compile(r"(.+)-(\d+)")
_NOT_OURS = "__cluster_metadata"  # a log that Kafka keeps beside the partitions of topics
_META_VERSION = "1"
_OFFSET_FILES = (  # in the order of writing
    checkpoints.LOG_START_OFFSETS,
    checkpoints.RECOVERY_POINTS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.CLEANER_OFFSETS,
)

_log = logs.get_logger(__name__)


class LogDirectory:
    __slots__ = (
        "_disk", "_offsets", "_release_lock", "_written", "clean_epoch", "directory_id", "is_offline", "path",
    )  # fmt: skip

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._release_lock: Callable[[], None] | None = None
        self._offsets: dict[str, dict[TopicPartition, int]] = {}  # by file, of logs that are not open
        self._written: dict[str, dict[TopicPartition, int]] = {}
        self.path = path
        self.directory_id = ""
        self.is_offline = False
        self.clean_epoch: int | None = None
        """The epoch of the last broker that used the directory, if it has closed it."""

    def open(self, broker_id: int, cluster_id: str, random: Random) -> list[TopicPartition]:
        """Lock the directory and find its partitions; a directory that belongs to somebody else is an error."""
        disk, path = self._disk, self.path
        self._make(path)
        self._release_lock = disk.lock(f"{path}/{_LOCK}")
        if self._release_lock is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is in use by another broker; stop it first")
        self._check_owner(broker_id, cluster_id, random)
        self.clean_epoch = checkpoints.take_clean_shutdown(disk, path)
        for file in _OFFSET_FILES:
            self._offsets[file] = self._read_offsets(file)
        partitions = []
        for name in disk.list_dir(path):
            if name.endswith(DELETE_SUFFIX):
                disk.remove_tree(f"{path}/{name}")
            elif (match := _PARTITION.fullmatch(name)) and match[1] != _NOT_OURS and self._is_directory(name):
                partitions.append((match[1], int(match[2])))
        return partitions

    def _read_offsets(self, file: str) -> dict[TopicPartition, int]:
        """Those of a file that is damaged are found again: from the logs by a scan, or from other replicas."""
        try:
            return checkpoints.read_offsets(self._disk, f"{self.path}/{file}")
        except checkpoints.CorruptCheckpoint as error:
            _log.error("checkpoint damaged; done without", problem=error)
            return {}

    def _is_directory(self, name: str) -> bool:
        try:
            self._disk.list_dir(f"{self.path}/{name}")
        except NotADirectoryError:
            return False
        return True

    def _make(self, path: str) -> None:
        """Make the directory where it is missing, and those above it, so that a power cut does not take them back."""
        if not self._disk.exists(path):
            parent = os.path.dirname(path) or "/"
            self._make(parent)
            self._disk.make_dirs(path)
            self._disk.sync_dir(parent)

    def _check_owner(self, broker_id: int, cluster_id: str, random: Random) -> None:
        path = f"{self.path}/{checkpoints.META_PROPERTIES}"
        found = checkpoints.read_properties(self._disk, path)
        for key, ours in (("cluster.id", cluster_id), ("node.id", str(broker_id))):
            if found.get(key, ours) != ours:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_CLUSTER_ID,
                    f"{path} says {key}={found[key]}, but this broker has {ours}; use another directory, or empty it",
                )
        self.directory_id = found.get("directory.id") or ids.uuid_text(ids.random_uuid(random))
        if len(found) < 4:
            owner = {"cluster.id": cluster_id, "directory.id": self.directory_id, "node.id": str(broker_id)}
            checkpoints.write_properties(self._disk, path, {**owner, "version": _META_VERSION})

    def state_of(self, partition: TopicPartition) -> LogState:
        """What the checkpoints know of a log that is about to be opened."""
        return LogState(
            self.clean_epoch is not None,
            self._offsets[checkpoints.RECOVERY_POINTS].get(partition, 0),
            self._offsets[checkpoints.LOG_START_OFFSETS].get(partition, 0),
            self._offsets[checkpoints.HIGH_WATERMARKS].get(partition, 0),
            self._offsets[checkpoints.CLEANER_OFFSETS].get(partition, 0),
        )

    def forget(self, partition: TopicPartition) -> None:
        """A log is open, or gone: from now on it speaks for itself."""
        for offsets in self._offsets.values():
            offsets.pop(partition, None)

    def checkpoint(self, logs: Iterable[Log]) -> Callable[[], None]:
        """Collect the offsets of the directory's open logs; the call that writes what has changed, for a thread."""
        collected = {file: dict(self._offsets.get(file, {})) for file in _OFFSET_FILES}
        for log in logs:
            partition = (log.topic, log.partition)
            collected[checkpoints.RECOVERY_POINTS][partition] = log.recovery_point
            collected[checkpoints.HIGH_WATERMARKS][partition] = log.high_watermark
            if log.log_start_offset:  # also where a segment begins: a power cut may bring back those before it
                collected[checkpoints.LOG_START_OFFSETS][partition] = log.log_start_offset
            if log.config.is_compacted and log.first_dirty_offset:
                collected[checkpoints.CLEANER_OFFSETS][partition] = log.first_dirty_offset
        return lambda: self._write(collected)

    def _write(self, collected: dict[str, dict[TopicPartition, int]]) -> None:
        for file, offsets in collected.items():
            if self._written.get(file) != offsets:
                checkpoints.write_offsets(self._disk, f"{self.path}/{file}", offsets)
                self._written[file] = offsets

    def mark_clean(self, broker_epoch: int) -> None:
        checkpoints.write_clean_shutdown(self._disk, self.path, broker_epoch)

    def release(self) -> None:
        if self._release_lock is not None:
            self._release_lock()
            self._release_lock = None

    def space(self) -> tuple[int, int]:
        """The bytes of the volume, and how many of them are free."""
        return self._disk.space(self.path)
