"""What fuzzed requests say: values that mean something to the broker, and values that sit on a boundary."""

from __future__ import annotations

from typing import Any

TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "gzip": {"compression.type": "gzip"},
    "zstd": {"compression.type": "zstd"},
    "lz4": {"compression.type": "lz4"},
    "snappy": {"compression.type": "snappy"},
    "bare": {"compression.type": "uncompressed"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "synced": {"flush.messages": "100"},
}
"""The topics that there are, and how each differs."""

NAMES = (*TOPICS, *TOPICS, "absent", "gone", "__consumer_offsets", "", "with space", "x" * 250)
DOOMED = ("absent", "gone")  # what is deleted; the others should last
CONFIG_NAMES = (
    "retention.ms", "retention.bytes", "segment.bytes", "segment.ms", "max.message.bytes", "compression.type",
    "cleanup.policy", "message.timestamp.type", "message.timestamp.before.max.ms", "min.insync.replicas",
    "index.interval.bytes", "segment.index.bytes", "no.such.key", "log.retention.ms", "",
)  # fmt: skip
CONFIG_VALUES = ("0", "-1", "1", "1048576", "9223372036854775807", "9223372036854775808", "compact", "gzip", "x", "",
                 "LogAppendTime", "delete,compact", "\N{SNOWMAN}", "1e3", "true")  # fmt: skip
TEXTS = ("", "a", "\N{SNOWMAN}" * 50)
BOUNDARIES = (0, 1, -1, 2, -2, 127, 128, -128, 255, 32767, -32768, 65535, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
SIZES = {"int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint16": 2, "uint32": 4}

_PARTITIONS = (0, 0, 0, 1, 1, 2, 2, 50, -1, 2**31 - 1)
_MAX_BYTES = (0, 1, 1000, 1 << 20, 2**31 - 1, -1)
FIELDS: dict[str, tuple[Any, ...]] = {
    "name": NAMES,
    "topic": NAMES,
    "topic_name": NAMES,
    "topic_names": NAMES,
    "resource_name": (*NAMES, "1", "2"),
    "resource_type": (2, 4, 8, 0, 3, 127),
    "partition": _PARTITIONS,
    "partition_index": _PARTITIONS,
    "partition_indexes": (0, 1, 2, -1),
    "index": _PARTITIONS,
    "partitions": (0, 1, 2, -1),
    "count": (-1, 0, 2, 3, 4, 10),
    "num_partitions": (-1, 0, 1, 3, 10),
    "replication_factor": (-1, 0, 1, 2, 32767),
    "acks": (-1, -1, -1, -1, 1, 1, 1, 0, 2, -2),
    "timeout_ms": (0, 1, 5, 1000, -1),
    "max_wait_ms": (0, 1, 5, -1),
    "min_bytes": (0, 1, 1, 1000, -1, 2**31 - 1),
    "max_bytes": _MAX_BYTES,
    "partition_max_bytes": _MAX_BYTES,
    "replica_id": (-1, -1, -1, 0, 1, 2, -2),
    "session_id": (0, 0, 1, -1),
    "session_epoch": (-1, -1, -1, 0, 0, 1, 2**31 - 1),
    "current_leader_epoch": (-1, -1, 0, 1, 2**31 - 1),
    "leader_epoch": (-1, 0, 1, 2, 2**31 - 1),
    "fetch_offset": (0, 1, 5, 100, -1, 2**63 - 1),
    "offset": (0, 1, 5, -1, -2, 2**63 - 1),
    "timestamp": (-1, -2, -3, -4, -5, -6, -7, 0, 1_700_000_000_000, 2**63 - 1),
    "isolation_level": (0, 1, 2),
    "config_names": CONFIG_NAMES,
    "value": CONFIG_VALUES,
    "config_operation": (0, 1, 2, 3, -1),
    "transactional_id": ("", "t"),
    "key_type": (0, 1, 2),
    "broker_ids": (0, 1, 2, -1),
}
"""Values by the name of their field."""
