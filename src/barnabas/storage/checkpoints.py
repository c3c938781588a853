"""The small text files beside the logs, in Kafka's formats.

In a log directory:

    recovery-point-offset-checkpoint, replication-offset-checkpoint (high watermarks), log-start-offset-checkpoint:
        version 0, a count, and a line `topic partition offset` for each
    meta.properties           which broker of which cluster the directory belongs to
    .kafka_cleanshutdown      there only after a clean stop: `{"version":0,"brokerEpoch":7}`

In a partition's directory:

    partition.metadata        `version: 0` and `topic_id: ` in Kafka's base64

Every write replaces the whole file, so a crash leaves the old one or the new one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import TypeAlias

from barnabas.core.seams import Disk

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
PARTITION_METADATA = "partition.metadata"

TopicPartition: TypeAlias = tuple[str, int]

_VERSION = "0"
UNKNOWN_BROKER_EPOCH = -1


class CorruptCheckpoint(ValueError):
    """A checkpoint that cannot be read; the message names the file."""


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
    """A file of `key=value` lines; nothing if there is none."""
    if not disk.exists(path):
        return {}
    lines = [line.strip() for line in disk.read_bytes(path).decode().splitlines()]
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {key.strip(): value.strip().replace("\\", "") for key, _, value in pairs}


def write_properties(disk: Disk, path: str, properties: Mapping[str, str]) -> None:
    disk.replace(path, "".join(f"{key}={value}\n" for key, value in sorted(properties.items())).encode())


def encode_uuid(uuid: bytes) -> str:
    """Kafka's way to write 16 bytes: URL-safe base64 without the padding."""
    return base64.urlsafe_b64encode(uuid).decode().rstrip("=")


def decode_uuid(text: str) -> bytes:
    uuid = base64.urlsafe_b64decode(text + "==")
    if len(uuid) != 16:
        raise ValueError(f"{text!r} is not a UUID of 16 bytes in base64")
    return uuid


def read_topic_id(disk: Disk, directory: str) -> bytes | None:
    """The topic id of a partition's directory; None if the file is not there, as before Kafka 2.8."""
    path = f"{directory}/{PARTITION_METADATA}"
    if not disk.exists(path):
        return None
    try:
        fields = dict(line.split(": ", 1) for line in disk.read_bytes(path).decode().splitlines())
        if fields["version"] != _VERSION:
            raise ValueError(f"version {fields['version']}")
        return decode_uuid(fields["topic_id"])
    except (KeyError, ValueError) as error:
        raise CorruptCheckpoint(f"{path} is damaged ({error}); write the topic's id into it again") from error


def write_topic_id(disk: Disk, directory: str, topic_id: bytes) -> None:
    text = f"version: {_VERSION}\ntopic_id: {encode_uuid(topic_id)}"
    disk.replace(f"{directory}/{PARTITION_METADATA}", text.encode())


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
