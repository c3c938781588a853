"""What a pipeline keeps between runs, in its state directory. All of it can be lost without losing or doubling a row:
the sinks hold the offsets. With it, a batch that a crash cut off is run again with the same end.

    run.json         the id of the pipeline's runs, where it began in each partition, and the ids of the topics
    plan.json        the batch that was planned last, written before it runs
    span.json        of a backfill: the offsets from and up to which it reads
    progress.jsonl   one line for each batch that was done
    report.html      of the last run
    checkpoint/      Spark's, of queries with state
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from barnabas.client.metadata import TopicPartition
from barnabas.spark.offsets import nested, unnested
from barnabas.spark.pipeline.errors import PipelineError
from barnabas.spark.pipeline.sinks import Offsets


@dataclass(frozen=True, slots=True)
class Plan:
    """A batch before it runs. `tables` are the ends of the sources that are read whole."""

    number: int
    start: Offsets
    end: Offsets
    tables: Offsets

    @property
    def size(self) -> int:
        return sum(max(0, end - self.start[partition]) for partition, end in self.end.items())


class State:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lock_file = directory / "lock"
        self.history_file = directory / "progress.jsonl"
        self.report_file = directory / "report.html"
        self._run_file = directory / "run.json"
        self._plan_file = directory / "plan.json"
        self._span_file = directory / "span.json"

    def query_id(self) -> str:
        """The id under which batches are numbered; a new one where there is no state."""
        run = _read(self._run_file) or {}
        if "query_id" not in run:
            run = {"query_id": str(uuid.uuid4()), "origin": {}, "topic_ids": {}}
            _write(self._run_file, run)
        return str(run["query_id"])

    def origin(self) -> dict[tuple[str, int], int]:
        """Where the pipeline began, as far as that is known."""
        return _offsets((_read(self._run_file) or {}).get("origin", {}))

    def topic_ids(self) -> dict[str, str]:
        """Of the topics that the pipeline has read."""
        return dict((_read(self._run_file) or {}).get("topic_ids", {}))

    def save_origin(self, offsets: Offsets, topic_ids: Mapping[str, str]) -> None:
        origin = nested(_by_partition(offsets))
        _write(self._run_file, {"query_id": self.query_id(), "origin": origin, "topic_ids": dict(topic_ids)})

    def last_plan(self) -> Plan | None:
        found = _read(self._plan_file)
        if found is None:
            return None
        return Plan(found["number"], *(_offsets(found[name]) for name in ("start", "end", "tables")))

    def save_plan(self, plan: Plan) -> None:
        ranges = {name: nested(_by_partition(getattr(plan, name))) for name in ("start", "end", "tables")}
        _write(self._plan_file, {"number": plan.number, **ranges})

    def span(self) -> tuple[Offsets, Offsets] | None:
        """Start and end of a backfill, once they are known."""
        found = _read(self._span_file)
        return None if found is None else (_offsets(found["start"]), _offsets(found["end"]))

    def save_span(self, start: Offsets, end: Offsets) -> None:
        _write(self._span_file, {"start": nested(_by_partition(start)), "end": nested(_by_partition(end))})


def _by_partition(offsets: Offsets) -> dict[TopicPartition, int]:
    return {TopicPartition(*partition): offset for partition, offset in offsets.items()}


def _offsets(topics: Mapping[str, Mapping[str, int]]) -> dict[tuple[str, int], int]:
    return {(topic, partition): offset for (topic, partition), offset in unnested(topics).items()}


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        problem = "is damaged; remove it, and the pipeline goes on from the offsets that its sinks hold"
        raise PipelineError(f"{file} {problem}") from None


def _write(file: Path, value: Mapping[str, Any]) -> None:
    """Whole or not at all, also when the machine stops."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".new")
    with open(fresh, "w") as out:
        json.dump(value, out)
        out.flush()
        os.fsync(out.fileno())
    os.replace(fresh, file)
