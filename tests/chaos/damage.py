"""Files that go bad: a bit flips, or the end is missing. What is damaged is one replica of a partition, or one broker's
checkpoints; the other replicas have what it has lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from random import Random

from barnabas.records.batch import CorruptBatch, check_batch

_RECENT = 2
Damage = Callable[[Path, Random], str]
"""Damages a file, and says how."""


def flip_a_bit(file: Path, random: Random) -> str:
    position, bit = random.randrange(file.stat().st_size), random.randrange(8)
    with file.open("r+b", buffering=0) as opened:
        opened.seek(position)
        (byte,) = opened.read(1)
        opened.seek(position)
        opened.write(bytes([byte ^ 1 << bit]))
    return f"bit {bit} of byte {position} of {file.parent.name}/{file.name}"


def cut_the_end(file: Path, random: Random) -> str:
    size = file.stat().st_size
    kept = random.randrange(max(0, size - 2000), size)
    with file.open("r+b") as opened:
        opened.truncate(kept)
    return f"the last {size - kept} bytes of {file.parent.name}/{file.name}"


def old_segments(data_dir: Path, topics: Iterable[str]) -> list[tuple[Path, int]]:
    """The segments that nothing is appended to, but for the latest, and the offsets at which they end."""
    return [
        (segment, int(following.stem))
        for logs in _logs(data_dir, topics)
        for segment, following in pairwise(logs[: 1 - _RECENT])
    ]


def last_segments(data_dir: Path, topics: Iterable[str]) -> list[Path]:
    return _filled(logs[-1] for logs in _logs(data_dir, topics))


def indexes(data_dir: Path, topics: Iterable[str]) -> list[Path]:
    suffixes = (".index", ".timeindex", ".txnindex", ".snapshot")
    return _filled(
        file for place in _partitions(data_dir, topics) for file in sorted(place.iterdir()) if file.suffix in suffixes
    )


def checkpoints(data_dir: Path, topics: Iterable[str]) -> list[Path]:
    """Of all partitions together, and of each."""
    own = (place / "leader-epoch-checkpoint" for place in _partitions(data_dir, topics))
    return _filled(file for file in [*sorted(data_dir.glob("*-checkpoint")), *own] if file.exists())


def batches(segments: Iterable[Path]) -> tuple[list[tuple[int, bytes]], str]:
    """The batches of a log, each by a digest of its bytes, and what is wrong with the first that is not right."""
    found: list[tuple[int, bytes]] = []
    for segment in segments:
        log = memoryview(segment.read_bytes())
        position = 0
        while position < len(log):
            try:
                header = check_batch(log, position)
            except CorruptBatch as error:
                return found, f"{segment.name} at {position}: {error}"
            digest = hashlib.blake2b(log[position : position + header.size], digest_size=16).digest()
            found.append((header.base_offset, digest))
            position += header.size
    return found, ""


def _filled(files: Iterable[Path]) -> list[Path]:
    return [file for file in files if file.stat().st_size]


def _partitions(data_dir: Path, topics: Iterable[str]) -> list[Path]:
    return sorted(place for topic in topics for place in data_dir.glob(f"{topic}-[0-9]*"))


def _logs(data_dir: Path, topics: Iterable[str]) -> list[list[Path]]:
    return [logs for place in _partitions(data_dir, topics) if (logs := sorted(place.glob("*.log")))]
