"""The report of a run: one HTML file that needs nothing else, neither a network nor scripts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from barnabas.spark.pipeline.charts import (
    PLOT,
    Panel,
    bar_chart,
    duration_shown,
    legend,
    series_class,
    shown,
    size_shown,
    time_chart,
)
from barnabas.spark.pipeline.definition import DEAD_LETTERS, Pipeline, Source, Transform
from barnabas.spark.pipeline.hour_bars import hour_bars
from barnabas.spark.pipeline.letter_causes import LetterCauses
from barnabas.spark.pipeline.page import (
    Markup,
    Number,
    count,
    element,
    joined,
    page,
    section,
    shortened,
    table,
    tile,
)
from barnabas.spark.pipeline.paths import SinkFeed
from barnabas.spark.pipeline.report_style import STYLE
from barnabas.spark.pipeline.run_summary import Ending, RunSummary
from barnabas.spark.pipeline.series import (
    Column,
    Segment,
    bridged,
    columns,
    lag_segments,
    speed_segments,
    state_segments,
)
from barnabas.spark.ranges import OffsetRange

_MOST_ERROR, _MOST_PARTITIONS, _MOST_RANGES, _MOST_SINK_TILES, _MOST_IN_A_ROW = 4_000, 500, 50, 4, 5
_FEW_FILES, _GAP = 12, 8
_NOTHING = Markup("")


def report_html(
    summary: RunSummary,
    pipeline: Pipeline | None = None,
    letters: LetterCauses | None = None,
    place: Path | None = None,
) -> str:
    """The report of a run that is over; `place` is the directory that it will lie in, for links to files."""
    has_batches = summary.batches > 0
    parts = [
        _header(summary),
        _tiles(summary) if has_batches else _NOTHING,
        _over_time(summary) if summary.batches > 1 else _NOTHING,
        _where_the_time_went(summary) if has_batches else _NOTHING,
        *(_hours(summary) if has_batches else ()),
        _slowest(summary) if summary.batches > 1 else _NOTHING,
        _dead_letters(summary, letters) if summary.dead_letters else _NOTHING,
        _partitions(summary) if has_batches else _NOTHING,
        _files(summary, place) if summary.last_files else _NOTHING,
        _definition(pipeline, summary) if pipeline is not None else _NOTHING,
    ]
    return page(f"{summary.pipeline}: report", STYLE, joined(*parts))


def counted(number: int, thing: str) -> str:
    plural = f"{thing}es" if thing.endswith("ch") else f"{thing}s"
    return f"{number:,} {thing if number == 1 else plural}"


def _header(summary: RunSummary) -> Markup:
    state, sentence = _status(summary)
    status = element("p", joined(element("b", state), f" {sentence}"), class_=f"status {summary.ending.value}")
    span = f"{_moment(summary.started)} to {_moment(summary.ended)} UTC"
    return element("header", joined(element("h1", summary.pipeline), status, element("p", span, class_="note")))


def _status(summary: RunSummary) -> tuple[str, str]:
    """How the run ended, in one sentence."""
    after = f"after {counted(summary.batches, 'batch')}" if summary.batches else "before the first batch was done"
    left = f"{counted(summary.lag, 'record')} left to read" if summary.lag else "nothing left to read"
    if summary.ending is Ending.FAILED:
        error = shortened(summary.error or "unknown error", _MOST_ERROR)
        return "Failed", f"{after}: {error}\nWhat was committed stays; the next run continues from there."
    if summary.ending is Ending.STOPPED:
        return "Stopped", f"on request {after}" + (f", {left}." if summary.batches else ".")
    if not summary.batches:
        return "Finished", "at once: there was nothing new to read."
    took = duration_shown(summary.ended - summary.started)
    return (
        "Finished",
        f"{counted(summary.records, 'record')} in {counted(summary.batches, 'batch')} and {took}, {left}.",
    )


def _tiles(summary: RunSummary) -> Markup:
    busy = summary.busy_seconds
    several = f"by {len(summary.queries)} queries" if len(summary.queries) > 1 else ""
    tiles = [tile("Records read", f"{summary.records:,}", several or counted(summary.batches, "batch"))]
    sinks = {name: sink for name, sink in summary.sinks.items() if name != DEAD_LETTERS}
    if len(sinks) <= _MOST_SINK_TILES:
        tiles += [tile(f"Rows to {name}", f"{sink.rows:,}") for name, sink in sinks.items()]
    else:
        tiles.append(tile("Rows", f"{sum(sink.rows for sink in sinks.values()):,}", f"to {len(sinks)} sinks"))
    tiles.append(tile("Records per second", shown(summary.records / busy if busy else 0.0), "while batches ran"))
    start = summary.first_began - summary.started
    note = f"{duration_shown(start)} until the first batch" if start >= 0.05 else ""
    tiles.append(tile("Duration", duration_shown(summary.ended - summary.started), note))
    files = sum(sink.files for sink in sinks.values())
    if files:
        size = size_shown(sum(sink.size_bytes for sink in sinks.values()))
        tiles.append(tile("Written", size, f"in {counted(files, 'file')}"))
    tiles.append(tile("Lag at the end", f"{summary.lag:,}", "records"))
    if summary.unsure:
        tiles.append(tile("Left to Spark", f"{summary.unsure:,}", _of_records(summary.unsure, summary.records)))
    bad = summary.dead_letters
    tiles.append(tile("Dead letters", f"{bad:,}", _of_records(bad, summary.records), "bad" if bad else ""))
    tiles += _state_tiles(summary)
    rows = -(-len(tiles) // _MOST_IN_A_ROW)
    return element("dl", joined(*tiles), class_="tiles", style=f"--columns:{-(-len(tiles) // rows)}")


def _of_records(part: int, records: int) -> str:
    return f"{100 * part / records:.2g} % of the records" if part and records else ""


def _state_tiles(summary: RunSummary) -> list[Markup]:
    lasts = [query.last for query in summary.queries.values() if query.last.state_rows is not None]
    if not lasts:
        return []
    size = size_shown(sum(each.state_bytes or 0 for each in lasts))
    return [tile("State at the end", f"{sum(each.state_rows or 0 for each in lasts):,}", f"rows, {size}")]


def _over_time(summary: RunSummary) -> Markup:
    start = summary.first_began
    end = summary.last_ended + (summary.last_ended - start) / 100  # so that the lag at the end is seen
    queries = summary.queries

    def shape(segments: Iterable[Segment]) -> Sequence[Column | None]:
        return columns(segments, start, end, PLOT)

    speeds = {name: bridged(shape(speed_segments(query.steps)), _GAP) for name, query in queries.items()}
    lags = {name: shape(lag_segments(query.steps, query.first_lag, end)) for name, query in queries.items()}
    panels = [Panel("Throughput", "records/s", speeds), Panel("Lag", "records", lags)]
    with_state = {name: query for name, query in queries.items() if query.last.state_rows is not None}
    if with_state:
        states = {name: shape(state_segments(query.steps, end)) for name, query in with_state.items()}
        panels.append(Panel("State", "rows", states))
    note = "Time of day in UTC."
    if summary.batches > PLOT / 4:
        note += " Lines are means, bands reach from the slowest to the fastest batch."
    chart = time_chart("Throughput and lag over time", panels, start, end)
    return section("Throughput and lag", joined(legend([query.label for query in queries.values()]), chart), note)


def _where_the_time_went(summary: RunSummary) -> Markup:
    """The run from its start to its end: sinks share the time in which batches ran as they took it."""
    busy, whole = summary.busy_seconds, max(summary.ended - summary.started, 1e-9)
    all_sinks = sum(sink.seconds for sink in summary.sinks.values()) or 1.0
    parts = [("before the first batch", "outside", summary.first_began - summary.started)]
    parts += [
        (f"writing {name}", _colour(summary, name), busy * sink.seconds / all_sinks)
        for name, sink in summary.sinks.items()
    ]
    parts.append(("between batches", "idle", summary.last_ended - summary.first_began - busy))
    parts.append(("after the last batch", "outside", summary.ended - summary.last_ended))
    seen = [(name, kind, seconds) for name, kind, seconds in parts if seconds >= whole / 500]
    bars = joined(
        *(
            element("span", "", class_=kind, style=f"--part:{seconds / whole:.5f}", title=_spent(name, seconds, whole))
            for name, kind, seconds in seen
        )
    )
    keys = joined(
        *(
            element("span", joined(f"{name} ", element("small", _share(seconds, whole))), class_=f"key {kind}")
            for name, kind, seconds in seen
        )
    )
    content = joined(element("div", bars, class_="split"), element("p", keys, class_="legend"))
    return section("Where the time went", content)


def _colour(summary: RunSummary, sink: str) -> str:
    """The class of the style that a sink has in every chart."""
    if sink == DEAD_LETTERS:
        return "letters"
    return series_class([name for name in summary.sinks if name != DEAD_LETTERS].index(sink))


def _share(seconds: float, whole: float) -> str:
    return f"{duration_shown(seconds)}, {100 * seconds / whole:.0f} %"


def _spent(name: str, seconds: float, whole: float) -> str:
    return f"{name}: {_share(seconds, whole)}"


def _hours(summary: RunSummary) -> list[Markup]:
    """Rows by event hour, a chart for each sink that knows the hours of its rows."""
    found = []
    for name, sink in summary.sinks.items():
        if not sink.rows_by_hour:
            continue
        hours = hour_bars(sink.rows_by_hour)
        notes = [f"Event time in UTC, {hours.span}."] if hours.bars else []
        if hours.without_time:
            notes.append(f"{counted(hours.without_time, 'row')} without a time.")
        title = f"Rows per {hours.unit}: {name}"
        chart = bar_chart(title, "rows", hours.bars, _colour(summary, name)) if hours.bars else _NOTHING
        found.append(section(title, chart, " ".join(notes)))
    return found


def _slowest(summary: RunSummary) -> Markup:
    slowest = summary.slowest
    longest = slowest[0].batch_seconds or 1.0
    rows = [
        (
            *((summary.queries[each.query].label,) if len(summary.queries) > 1 else ()),
            Number(f"{each.batch:,}"),
            _moment(each.began),
            _offsets(each.ranges),
            count(each.records),
            Number(shown(each.records / each.batch_seconds if each.batch_seconds else 0.0)),
            Number(duration_shown(each.batch_seconds), each.batch_seconds / longest),
        )
        for each in slowest
    ]
    heads = ["Batch#", "Began", "Offsets", "Records#", "Records/s#", "Time#"]
    if len(summary.queries) > 1:
        heads.insert(0, "Query")
    mean = sum(query.busy_seconds for query in summary.queries.values()) / summary.batches
    note = f"{len(slowest)} of {counted(summary.batches, 'batch')}; their mean is {duration_shown(mean)}."
    return section("Slowest batches", table(heads, rows), note)


def _offsets(ranges: Sequence[OffsetRange]) -> Markup:
    if not ranges:
        return Markup("\N{EN DASH}")
    texts = [f"{one.topic}-{one.partition}: {one.start:,} to {one.end:,}" for one in ranges[:_MOST_RANGES]]
    more = len(ranges) - 1
    shown_text = f"{texts[0]} and {more:,} more" if more else texts[0]
    return element("span", shown_text, title="\n".join([*texts, *(["..."] if len(ranges) > len(texts) else [])]))


def _dead_letters(summary: RunSummary, letters: LetterCauses | None) -> Markup:
    if letters is None:
        return section("Dead letters", element("p", f"{counted(summary.dead_letters, 'record')} could not be read."))
    notes = [f"{counted(summary.dead_letters, 'record')} could not be read."]
    if letters.count < summary.dead_letters:
        notes.append(f"The causes are those of the last {letters.count:,}.")
    if letters.problem is not None:
        notes.append(f"The topic of dead letters could not be read to its end: {shortened(letters.problem, 500)}.")
    by_count = sorted(letters.causes.items(), key=lambda item: -item[1].count)
    details = []
    for index, (kind, cause) in enumerate(by_count):
        rows = [
            (f"{each.topic}-{each.partition}", count(each.offset), each.cause, element("code", each.value))
            for each in cause.samples
        ]
        head = element("summary", joined(element("b", f"{cause.count:,}"), f" \N{MULTIPLICATION SIGN} {kind}"))
        samples = table(["Partition", "Offset#", "Cause", "Value begins with"], rows)
        is_open = {"open": "open"} if index == 0 else {}
        details.append(element("details", joined(head, samples), class_="samples", **is_open))
    return section("Dead letters", joined(*details), " ".join(notes))


def _partitions(summary: RunSummary) -> Markup:
    found = [(query.label, each) for query in summary.queries.values() for each in query.last.partitions]
    most = max((each.done - each.start for _, each in found), default=0) or 1
    several = len(summary.queries) > 1
    rows = [
        (
            *((name,) if several else ()),
            f"{each.topic}-{each.partition}",
            count(each.start),
            count(each.done),
            count(each.latest),
            count(each.to_go),
            count(each.done - each.start, (each.done - each.start) / most),
        )
        for name, each in found[:_MOST_PARTITIONS]
    ]
    heads = ["Partition", "From offset#", "To offset#", "End of the log#", "Left#", "Records read#"]
    more = len(found) - _MOST_PARTITIONS
    note = f"The first {_MOST_PARTITIONS:,}; {more:,} more are not shown." if more > 0 else ""
    return section("Partitions", table(["Query", *heads] if several else heads, rows), note)


def _files(summary: RunSummary, place: Path | None) -> Markup:
    total = sum(sink.files for sink in summary.sinks.values())
    files = list(summary.last_files)
    several = sum(1 for sink in summary.sinks.values() if sink.files) > 1
    rows = [
        (
            *((sink,) if several else ()),
            _link(file.path, place),
            element("span", f"{file.hour.replace('T', ' ')}:00" if "T" in file.hour else file.hour, class_="number"),
            count(file.rows),
            Number(size_shown(file.size_bytes)),
        )
        for sink, file in files
    ]
    heads = ["File", "Event hour", "Rows#", "Size#"]
    listed = table(["Sink", *heads] if several else heads, rows)
    more = total - len(files)
    text = f"{counted(len(files), 'file')}" + (f", the last ones; {more:,} more are not listed" if more > 0 else "")
    is_open = {"open": "open"} if len(files) <= _FEW_FILES else {}
    return section("Files written", element("details", joined(element("summary", text), listed), **is_open))


def _link(path: str, place: Path | None) -> Markup:
    """A link to a file on this machine, relative to the report where it can be; elsewhere its name."""
    name = element("code", path)
    if not path.startswith("file:"):
        return name
    local = "/" + path.removeprefix("file:").lstrip("/")
    if place is None:
        return element("a", element("code", local), href=f"file://{_quoted(local)}")
    relative = os.path.relpath(local, place.absolute())
    return element("a", element("code", relative), href=_quoted(relative))


def _quoted(path: str) -> str:
    return quote(path, errors="surrogatepass")


def _definition(pipeline: Pipeline, summary: RunSummary) -> Markup:
    sources = [
        (source.name, _topics(source), source.format.value, _kind_of_source(source)) for source in pipeline.sources
    ]
    parts = [table(["Source", "Topics", "Format", "Read"], sources)]
    if pipeline.transforms:
        views = [(each.name, _made_by(each)) for each in pipeline.transforms]
        parts.append(table(["View", "Made by"], views))
    feeds = {feed.sink: feed for feed in summary.sink_feeds}
    sinks = [
        (sink.name, sink.head.kind, _target(sink.settings), sink.head.from_, *_how(feeds.get(sink.name)))
        for sink in pipeline.sinks
    ]
    if pipeline.dead_letters is not None:
        sinks.append((DEAD_LETTERS, "topic", pipeline.dead_letters.topic, "", *_how(feeds.get(DEAD_LETTERS))))
    parts.append(table(["Sink", "Kind", "To", "From view", "Fed by", "Path", "Why this path"], sinks))
    return section("Pipeline", joined(*parts), f"Mode {pipeline.mode.value}.")


def _how(feed: SinkFeed | None) -> tuple[str, str, str]:
    return ("", "", "") if feed is None else (feed.fed_by, feed.path.value, feed.reason)


def _topics(source: Source) -> str:
    return f"/{source.pattern}/" if source.pattern is not None else ", ".join(source.topics)


def _kind_of_source(source: Source) -> str:
    if source.is_table:
        return f"as a table by {', '.join(source.newest_by)}"
    return f"from {source.start}"


def _made_by(transform: Transform) -> Markup:
    if transform.sql is not None:
        return element("code", shortened(transform.sql.strip(), 1_000))
    given = next(key for key in ("python", "arrow", "window") if getattr(transform, key) is not None)
    what = "" if given == "window" else f" {getattr(transform, given)}"
    return joined(f"{given}{what} of {transform.from_}")


def _target(settings: object) -> str:
    """Where a sink writes; not its URL, which may hold a password."""
    return next((str(getattr(settings, key)) for key in ("path", "topic", "table") if hasattr(settings, key)), "")


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
