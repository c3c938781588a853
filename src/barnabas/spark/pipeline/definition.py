"""What a pipeline's file says: sources, transforms, sinks, and how they are run."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from barnabas.spark.pipeline.yaml_nodes import Misfit, nearest

DEAD_LETTERS = "dead-letters"
"""The name of the sink that takes the records that cannot be read."""

_NAME = re.compile(r"[A-Za-z_]\w*")
_PIPELINE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_DURATION = re.compile(r"(\d+)\s*([a-z]+)")
_UNITS_MS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}


class Mode(StrEnum):
    BATCH = "batch"
    """One load of everything up to now; windows see this load only."""
    AVAILABLE_NOW = "available-now"
    """Everything up to now in batches, with the state of windows kept for the next run."""
    MICRO_BATCH = "micro-batch"
    """Batch after batch until it is stopped."""


class Format(StrEnum):
    JSON = "json"
    CSV = "csv"
    TEXT = "text"
    BYTES = "bytes"
    AVRO = "avro"


class Framing(StrEnum):
    CONFLUENT = "confluent"
    """A zero byte and the id of the writer's schema in four bytes before each value."""
    NONE = "none"


class DataLoss(StrEnum):
    """Of records that retention or somebody has removed before they were read."""

    FAIL = "fail"
    """The run stops, and names them."""
    SKIP = "skip"
    """They are a warning, and what is still there is read."""


@dataclass(frozen=True, slots=True)
class Cluster:
    bootstrap_servers: str
    options: Mapping[str, str] = field(default_factory=dict)
    """Kafka's dotted names, for the clients of all sources."""

    def source_options(self) -> dict[str, str]:
        options = {"isolation.level": "read_committed", **self.options, "bootstrap.servers": self.bootstrap_servers}
        return {f"kafka.{name}": value for name, value in options.items()}


@dataclass(frozen=True, slots=True)
class Watermark:
    """How late a row may come by its event time before windows and joins leave it out."""

    column: str
    delay: str

    def __post_init__(self) -> None:
        parse_duration_ms(self.delay, "delay")


@dataclass(frozen=True, slots=True)
class Source:
    """Topics that become a view with the columns of the schema, and of where each record comes from."""

    name: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    start: str = "earliest"
    """earliest, latest, a time such as 2026-11-01T00:00:00Z, or offsets such as {"clicks": {"0": 5}}."""
    format: Format = Format.JSON
    schema: str | None = None
    """Spark's DDL; for Avro a schema in JSON, or the path of a file with one."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Of Spark's from_json and from_csv."""
    framing: Framing = Framing.CONFLUENT
    registry: str | None = None
    """Where writers' schemas are: the URL of a registry, or a directory with files ID.avsc."""
    key: str | None = None
    """A column for the record's key, as text."""
    watermark: Watermark | None = None
    newest_by: tuple[str, ...] = ()
    """Makes the source a table: of the rows with equal values here, only the newest; read whole, up to now."""
    data_loss: DataLoss = DataLoss.FAIL

    def __post_init__(self) -> None:
        check_view_name(self.name)
        if bool(self.topics) == (self.pattern is not None):
            raise Misfit(f"source {self.name!r} needs either topics or a pattern")
        if (self.schema is None) != (self.format in (Format.TEXT, Format.BYTES)):
            wants = "needs a schema" if self.schema is None else "has no schema: its one column is `value`"
            raise Misfit(f"format {self.format.value} {wants}", "schema")
        if self.registry is not None and self.format is not Format.AVRO:
            raise Misfit("a registry is for format avro only", "registry")
        if self.newest_by and self.watermark is not None:
            raise Misfit("a table (newest_by) has no watermark", "watermark")
        if self.newest_by and self.data_loss is not DataLoss.FAIL:
            raise Misfit("a table (newest_by) is read from what is there, so it loses nothing", "data_loss")
        check_start(self.start)

    @property
    def is_table(self) -> bool:
        return bool(self.newest_by)

    def topic_options(self) -> dict[str, str]:
        return {"subscribePattern": self.pattern} if self.pattern is not None else {"subscribe": ",".join(self.topics)}


@dataclass(frozen=True, slots=True)
class Window:
    """Rows grouped by their time: tumbling (size), sliding (size and slide), or sessions (gap)."""

    column: str
    size: str | None = None
    slide: str | None = None
    gap: str | None = None
    group_by: tuple[str, ...] = ()
    aggregate: Mapping[str, str] = field(default_factory=dict)
    """Columns of the result, each a Spark SQL expression such as count(*)."""

    def __post_init__(self) -> None:
        if (self.size is None) == (self.gap is None):
            raise Misfit("a window has either a size, or the gap that ends a session")
        if self.slide is not None and self.size is None:
            raise Misfit("a session does not slide", "slide")
        if not self.aggregate:
            raise Misfit("a window needs at least one column under aggregate", "aggregate")
        for key in ("size", "slide", "gap"):
            value = getattr(self, key)
            if value is not None:
                parse_duration_ms(value, key)


@dataclass(frozen=True, slots=True)
class Transform:
    """A view made of earlier ones: by SQL, by a function of DataFrames or of Arrow batches, or by a window."""

    name: str
    sql: str | None = None
    python: str | None = None
    """The dotted name of a function from DataFrame to DataFrame."""
    arrow: str | None = None
    """The dotted name of a function from pyarrow.RecordBatch to pyarrow.RecordBatch, which is run in the tasks."""
    window: Window | None = None
    from_: str | None = None
    """The view that a function or a window reads."""
    watermark: Watermark | None = None

    def __post_init__(self) -> None:
        check_view_name(self.name)
        given = [key for key in ("sql", "python", "arrow", "window") if getattr(self, key) is not None]
        if len(given) != 1:
            raise Misfit(f"transform {self.name!r} needs one of sql, python, arrow, window; {len(given)} are given")
        if (self.from_ is None) != (self.sql is not None):
            raise Misfit(
                "SQL names its views itself" if self.sql else f"{given[0]} needs `from`, the view it reads", "from"
            )
        for key in ("python", "arrow"):
            dotted = getattr(self, key)
            if dotted is not None and "." not in dotted:
                raise Misfit(f"{dotted!r} is not the dotted name of a function, such as shop.functions.clean", key)


class Emit(StrEnum):
    """Of windows and other groups that grow: when their rows reach a sink."""

    FINAL = "final"
    """Once, when the watermark has passed."""
    CHANGES = "changes"
    """After each batch that changed them, for sinks that replace rows by a key."""


@dataclass(frozen=True, slots=True)
class SinkHead:
    """The keys that sinks of every kind have."""

    name: str
    kind: str
    from_: str
    emit: Emit = Emit.FINAL


@dataclass(frozen=True, slots=True)
class SinkDefinition:
    head: SinkHead
    settings: Any
    """Of the dataclass that belongs to the kind."""

    @property
    def name(self) -> str:
        return self.head.name


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Where records go that cannot be read; without it, they stop the run."""

    topic: str


@dataclass(frozen=True)
class Pipeline:
    name: str
    cluster: Cluster
    sources: tuple[Source, ...]
    sinks: tuple[SinkDefinition, ...]
    mode: Mode = Mode.AVAILABLE_NOW
    transforms: tuple[Transform, ...] = ()
    trigger: str = "10 seconds"
    """Of micro-batches: the time from the start of one to the start of the next."""
    max_records_per_batch: int | None = None
    max_records_per_task: int = 1_000_000
    state: str | None = None
    """A directory for the lock, the plans, the progress and Spark's checkpoint; by default beside the file."""
    checkpoint: str | None = None
    """Where Spark keeps the state of windows: a path that all executors see; by default in `state`."""
    dead_letters: DeadLetters | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    """Spark's configuration."""

    def __post_init__(self) -> None:
        if not _PIPELINE_NAME.fullmatch(self.name):
            raise Misfit(f"name {self.name!r} has other characters than letters, digits, '.', '_' and '-'", "name")
        for key in ("sources", "sinks"):
            if not getattr(self, key):
                raise Misfit(f"a pipeline needs at least one of {key}", key)
        for key in ("max_records_per_batch", "max_records_per_task"):
            if (getattr(self, key) or 1) < 1:
                raise Misfit(f"{key} is below 1", key)
        parse_duration_ms(self.trigger, "trigger")
        self._check_views()
        self._check_sinks()
        if all(source.is_table for source in self.sources):
            raise Misfit("every source is a table (newest_by); one has to drive the pipeline", "sources")

    def _check_views(self) -> None:
        known: list[str] = []
        for key in ("sources", "transforms"):
            for index, view in enumerate(getattr(self, key)):
                if view.name in known:
                    raise Misfit(f"there are two views {view.name!r}", key, index, "name")
                if isinstance(view, Transform) and view.from_ is not None:
                    _check_known(view.from_, known, key, index)
                known.append(view.name)

    def _check_sinks(self) -> None:
        views = [view.name for view in self.views]
        names: list[str] = []
        for index, sink in enumerate(self.sinks):
            if sink.name in names:
                raise Misfit(f"there are two sinks {sink.name!r}", "sinks", index, "name")
            if sink.name == DEAD_LETTERS:
                raise Misfit(
                    f"{sink.name!r} is the sink of the key dead_letters; use another name", "sinks", index, "name"
                )
            names.append(sink.name)
            _check_known(sink.head.from_, views, "sinks", index)

    @property
    def views(self) -> list[Source | Transform]:
        return [*self.sources, *self.transforms]

    @property
    def trigger_ms(self) -> int:
        return parse_duration_ms(self.trigger, "trigger")

    def views_behind(self, view: str) -> list[Source | Transform]:
        """A view and all that it may read. SQL counts as reading every view whose name it holds."""
        left = {each.name: each for each in self.views}
        wanted, found = [view], []
        while wanted:
            behind = left.pop(wanted.pop(), None)
            if behind is None:
                continue
            found.append(behind)
            if isinstance(behind, Transform):
                wanted += [behind.from_] if behind.from_ is not None else _NAME.findall(behind.sql or "")
        return found

    def sources_behind(self, view: str) -> list[Source]:
        behind = self.views_behind(view)
        return [source for source in self.sources if source in behind]

    def driving_sources(self, view: str) -> list[Source]:
        """Those behind a view whose records become rows; tables are only looked up."""
        return [source for source in self.sources_behind(view) if not source.is_table]

    def has_watermark(self, view: str) -> bool:
        return any(behind.watermark is not None for behind in self.views_behind(view))


def check_view_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise Misfit(f"name {name!r} cannot be a view in SQL: letters, digits and '_' only", "name")


def _check_known(view: str, known: Sequence[str], key: str, index: int) -> None:
    if view not in known:
        raise Misfit(f"there is no view {view!r} to read from{nearest(view, known)}", key, index, "from")


def parse_duration_ms(text: str, key: str) -> int:
    """Such as `10 minutes` or `500ms`."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise Misfit(f"{key} is {text!r}, not a time such as '10 minutes'", key)
    number, unit = match.groups()
    if unit not in _UNITS_MS:
        raise Misfit(f"{key} is {text!r}: unknown unit {unit!r}{nearest(unit, list(_UNITS_MS))}", key)
    return int(number) * _UNITS_MS[unit]


def parse_time_ms(text: str) -> int:
    """Milliseconds since 1970 of a time in ISO form, in UTC unless it says otherwise."""
    moment = datetime.fromisoformat(text)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def check_start(start: str) -> None:
    if start in ("earliest", "latest") or start.lstrip().startswith("{"):
        return
    try:
        parse_time_ms(start)
    except ValueError:
        words = ["earliest", "latest"]
        problem = f"start cannot be {start!r}{nearest(start, words)}"
        raise Misfit(f"{problem}; a time is written 2026-11-01T00:00:00Z", "start") from None


def default_state(file: Path, name: str) -> Path:
    return Path(os.path.abspath(file)).parent / ".barnabas" / name
