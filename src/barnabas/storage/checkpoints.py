"""The small text files beside the logs, in Kafka's formats.

In a log directory:

    recovery-point-offset-checkpoint, replication-offset-checkpoint (high watermarks), log-start-offset-checkpoint,
    cleaner-offset-checkpoint (up to where a log is compacted):
        version 0, a count, and a line `topic partition offset` for each
    meta.properties           which broker of which cluster the directory belongs to
    .kafka_cleanshutdown      there only after a clean stop: `{"version":0,"brokerEpoch":7}`

In a partition's directory:

    partition.metadata        `version: 0` and `topic_id: ` in Kafka's base64

Every write replaces the whole file, so a crash leaves the old one or the new one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeAlias

from barnabas.core import ids, properties
from barnabas.core.seams import Disk

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
PARTITION_METADATA = "partition.metadata"

TopicPartition: TypeAlias = tuple[str, int]

_VERSION = "0"
UNKNOWN_BROKER_EPOCH = -1


class CorruptCheckpoint(OSError):
    """A file that cannot be made sense of, which is the disk's fault like one that cannot be read."""


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """What `write_offsets` wrote; nothing if there is no such file."""
    if not disk.exists(path):
        return {}
    try:
        version, count, *lines = disk.read_bytes(path).decode().splitlines()
        rows = [line.split() for line in lines]
        offsets = {(topic, int(partition)): int(offset) for topic, partition, offset in rows}
        if version != _VERSION or len(rows) != int(count):
            raise ValueError(f"version {version} with {len(rows)} of {count} entries")
    except ValueError as error:
        raise CorruptCheckpoint(f"{path} is damaged ({error}); remove it to start from what the logs tell") from error
    return offsets


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    lines = [_VERSION, str(len(offsets))]
    lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    disk.replace(path, "".join(f"{line}\n" for line in lines).encode())


def read_properties(disk: Disk, path: str) -> dict[str, str]:
    """A file in Java's format; nothing if there is none."""
    if not disk.exists(path):
        return {}
    return {name: value for name, value, _ in properties.parse_bytes(disk.read_bytes(path), path)}


def write_properties(disk: Disk, path: str, values: Mapping[str, str]) -> None:
    disk.replace(path, properties.render(values).encode())


def read_topic_id(disk: Disk, directory: str) -> bytes | None:
    """The topic id of a partition's directory; None if there is none, or a power cut has emptied the file."""
    path = f"{directory}/{PARTITION_METADATA}"
    data = disk.read_bytes(path) if disk.exists(path) else b""
    if not data.strip(b"\0"):
        return None
    try:
        fields = dict(line.split(": ", 1) for line in data.decode().splitlines())
        if fields["version"] != _VERSION:
            raise ValueError(f"version {fields['version']}")
        return ids.parse_uuid(fields["topic_id"])
    except (KeyError, ValueError) as error:
        raise CorruptCheckpoint(f"{path} is damaged ({error}); write the topic's id into it again") from error


def write_topic_id(disk: Disk, directory: str, topic_id: bytes) -> None:
    """Not synced, so that a thousand partitions are made quickly; what gets lost is written again."""
    file = disk.open(f"{directory}/{PARTITION_METADATA}", create=True)
    file.truncate(0)
    file.append(f"version: {_VERSION}\ntopic_id: {ids.uuid_text(topic_id)}".encode())
    file.close()


def take_clean_shutdown(disk: Disk, directory: str) -> int | None:
    """The broker epoch of the clean stop that the directory has seen, None after a crash. The mark is taken away."""
    path = f"{directory}/{CLEAN_SHUTDOWN}"
    if not disk.exists(path):
        return None
    data = disk.read_bytes(path)
    disk.remove(path)
    disk.sync_dir(directory)
    try:
        return int(json.loads(data)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return UNKNOWN_BROKER_EPOCH  # an older Kafka leaves the file empty


def write_clean_shutdown(disk: Disk, directory: str, broker_epoch: int) -> None:
    mark = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    disk.replace(f"{directory}/{CLEAN_SHUTDOWN}", mark.encode())
