"""The dead letters of a run by cause, with samples, read back from their topic when the run is over.

Only the end of the topic is read, for a limited time, and of each letter little is kept: a report must neither fail a
run nor hold it up.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from barnabas.client.consumer import Consumer
from barnabas.client.offsets import Last
from barnabas.core.errors import KafkaError
from barnabas.spark.cluster import run
from barnabas.spark.kafka_options import KafkaOptions
from barnabas.spark.pipeline.backfill import is_backfill_of
from barnabas.spark.pipeline.definition import Pipeline
from barnabas.spark.pipeline.page import shortened
from barnabas.spark.pipeline.replay import Letter, find_ends, letters_topic, read_letters
from barnabas.spark.pipeline.run_summary import RunSummary

MOST_LETTERS = 10_000
MOST_SAMPLES = 5
MOST_CAUSES = 50
LONGEST_S = 10.0
_CAUSE_LENGTH, _VALUE_LENGTH = 300, 200
_FETCH_BYTES = 4 << 20
_VALUES = re.compile(r"(?<= is )[^\n]+(?=, not )")
_NUMBERS = re.compile(r"(?<![\w'\"-])(?:0x[0-9a-fA-F]+|\d+)")
OTHERS = "other causes"


@dataclass(frozen=True, slots=True)
class Sample:
    topic: str
    partition: int
    offset: int
    cause: str
    value: str
    """The beginning of the value."""


@dataclass
class Cause:
    count: int = 0
    samples: list[Sample] = field(default_factory=list)


@dataclass
class LetterCauses:
    """Letters by the kind of their cause."""

    causes: dict[str, Cause] = field(default_factory=dict)
    problem: str | None = None
    """Why not all could be read."""

    @property
    def count(self) -> int:
        return sum(cause.count for cause in self.causes.values())

    def add(self, letter: Letter) -> None:
        kind = cause_kind(letter.cause)
        if kind not in self.causes and len(self.causes) >= MOST_CAUSES:
            kind = OTHERS
        cause = self.causes.setdefault(kind, Cause())
        cause.count += 1
        if len(cause.samples) < MOST_SAMPLES:
            text, value = shortened(letter.cause, _CAUSE_LENGTH), value_shown(letter.record.value)
            cause.samples.append(Sample(letter.topic, letter.partition, letter.offset, text, value))


def cause_kind(cause: str) -> str:
    """The cause without the values and positions that make every record's different."""
    general = _VALUES.sub("\N{HORIZONTAL ELLIPSIS}", cause.strip())
    return shortened(_NUMBERS.sub("N", general), _CAUSE_LENGTH) or "unknown"


def value_shown(value: bytes | None) -> str:
    if value is None:
        return "(no value)"
    text = bytes(value[: _VALUE_LENGTH * 4]).decode(errors="backslashreplace")
    size = f" ({len(value):,} bytes)" if len(text) > _VALUE_LENGTH else ""
    return shortened(text, _VALUE_LENGTH) + size


def find_causes(pipeline: Pipeline, summary: RunSummary) -> LetterCauses:
    """Of the letters that this run has written; what goes wrong is a line of the report."""
    found = LetterCauses()
    try:
        run(_read(pipeline, summary, found))
    except TimeoutError:
        found.problem = f"reading them took longer than {LONGEST_S:g} s"
    except (KafkaError, OSError, ValueError) as problem:
        found.problem = str(problem)
    return found


async def _read(pipeline: Pipeline, summary: RunSummary, found: LetterCauses) -> None:
    topic, kafka = letters_topic(pipeline)
    async with asyncio.timeout(LONGEST_S):
        ends = await find_ends(topic, kafka)
        async with _consumer(kafka) as consumer:
            await consumer.assign_at(ends, Last(-(-MOST_LETTERS // max(1, len(ends)))))
            while not all([await consumer.position(partition) >= end for partition, end in ends.items()]):
                for letter in letters_of_run(read_letters(await consumer.poll()), summary):
                    found.add(letter)


def letters_of_run(letters: Iterable[tuple[str, Letter]], summary: RunSummary) -> list[Letter]:
    """Those of this pipeline whose records the run has read; a topic may hold letters of others."""
    read = {
        (each.topic, each.partition): range(each.start, each.done)
        for query in summary.queries.values()
        for each in query.last.partitions
    }
    return [
        letter
        for pipeline, letter in letters
        if (pipeline == summary.pipeline or is_backfill_of(summary.pipeline, pipeline))
        and letter.offset in read.get((letter.topic, letter.partition), ())
    ]


def _consumer(kafka: KafkaOptions) -> Consumer:
    return Consumer(
        kafka.bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        fetch_max_bytes=_FETCH_BYTES,
        max_partition_fetch_bytes=_FETCH_BYTES,
        **kafka.client_settings(),
    )
