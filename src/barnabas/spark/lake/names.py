"""Names of files and directories in a lake.

The name of a data file is made of the offsets that it may hold (from, up to and not including), so that loading the
same offsets again gives the same name: `clicks-3-00000000000000000100-00000000000000000200.snappy.parquet`. Several
files of the same offsets in one hour are numbered behind that. A file of many ranges has a digest of them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from barnabas.spark.ranges import OffsetRange

MANIFEST, STAGING, LATE = "_manifest", "_staging", "_late"
MARKER = "_SUCCESS"
"""In the directory of an hour that is complete; the name that Hadoop's tools wait for."""

_PART = re.compile(r"part-(?P<task>\d+)-[0-9a-f-]+[.-]c(?P<number>\d+)(?P<suffix>\..+)")


def ranges_name(ranges: Sequence[OffsetRange]) -> str:
    """What files of these offsets are called."""
    first = min(ranges)
    # A topic may begin with what hides a file from readers.
    topic = first.topic if first.topic[0] not in "_." else f"topic{first.topic}"
    if len(ranges) == 1:
        return f"{topic}-{first.partition}-{first.start:020}-{first.end:020}"
    return f"{topic}-{first.partition}-and-{len(ranges) - 1}-more-{_digest(map(str, sorted(ranges)))}"


def batch_name(query_id: str, number: int) -> str:
    """What files of a batch that is not known by its offsets are called."""
    return f"batch-{_digest([query_id])}-{number:010}"


def files_name(paths: Iterable[str]) -> str:
    """What a file is called that holds the rows of these, when their offsets are not known."""
    return f"files-{_digest(sorted(paths))}"


def _digest(texts: Iterable[str]) -> str:
    return sha256("\n".join(texts).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, order=True)
class PartName:
    """The name that Spark gives a file: by task of the job, and number of the file in that task."""

    task: int
    number: int
    suffix: str

    @classmethod
    def parse(cls, name: str) -> PartName:
        match = _PART.fullmatch(name)
        if match is None:
            raise ValueError(f"{name!r} is not a name that Spark gives to a file of rows")
        return cls(int(match["task"]), int(match["number"]), match["suffix"])


def file_name(base: str, index: int, suffix: str) -> str:
    return f"{base}-{index}{suffix}" if index else f"{base}{suffix}"


def version_name(version: int) -> str:
    return f"{version:020}.json"


def checkpoint_name(version: int) -> str:
    return f"{version:020}.checkpoint.json"
