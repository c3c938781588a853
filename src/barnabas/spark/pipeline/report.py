"""A run's report: one HTML file that needs nothing else, with plots of throughput, batch time and lag."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape

from barnabas.spark.pipeline.charts import Points, line_chart
from barnabas.spark.pipeline.progress import Progress

Value = Callable[[Progress], float]
_STYLE = """
:root { color-scheme: light dark; --ink: light-dark(#111827, #e5e7eb); --faint: light-dark(#e5e7eb, #374151); }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--faint); }
th { text-align: left; font-weight: 600; } td.number { text-align: right; font-variant-numeric: tabular-nums; }
figure { margin: 1.5rem 0; } figcaption { font-weight: 600; } svg { width: 100%; height: auto; }
svg text { font-size: 11px; fill: var(--ink); } .grid { stroke: var(--faint); }
.facts { display: flex; flex-wrap: wrap; gap: .5rem 2rem; margin: 1rem 0; }
.facts b { display: block; font-size: 1.3rem; }
.key::before { content: ''; display: inline-block; width: .7em; height: .7em; margin: 0 .3em 0 1em; }
.key::before { background: var(--colour); }
.error { border-left: 4px solid #dc2626; padding: .3rem .8rem; }
"""


def report_html(pipeline: str, told: Sequence[Progress], error: str | None = None) -> str:
    """From the progress of one run, in the order in which it was told."""
    head = f"<meta charset='utf-8'><title>{escape(pipeline)}: report</title><style>{_STYLE}</style>"
    failed = "" if error is None else f"<p class='error'>The run ended with an error: {escape(error)}</p>"
    body = "<p>No batch was run: there was nothing to do.</p>" if not told else _content(told)
    page = f"<head>{head}</head><body><h1>{escape(pipeline)}</h1>{failed}{body}</body>"
    return f"<!doctype html><html lang='en'>{page}</html>\n"


def _content(told: Sequence[Progress]) -> str:
    began = told[0].at - told[0].batch_seconds
    by_query: dict[str, list[Progress]] = {}
    for each in told:
        by_query.setdefault(each.query, []).append(each)
    parts = [_facts(told, began), "<h2>Throughput, batch time and lag</h2>"]
    parts.append(_chart("Throughput", "records/s", by_query, began, _speed))
    parts.append(_chart("Batch time", "s", by_query, began, lambda each: each.batch_seconds))
    parts.append(_chart("Lag", "records", by_query, began, lambda each: float(each.lag)))
    if any(each.state_rows is not None for each in told):
        parts.append(_chart("State", "rows", by_query, began, lambda each: float(each.state_rows or 0)))
    parts += ["<h2>Sinks</h2>", _table(_sinks(told)), "<h2>Partitions</h2>", _table(_partitions(by_query))]
    parts += ["<h2>Batches</h2>", _table([_batch(each) for each in told[-100:]])]
    return "".join(parts)


def _speed(each: Progress) -> float:
    return each.records / each.batch_seconds if each.batch_seconds else 0.0


def _facts(told: Sequence[Progress], began: float) -> str:
    seconds = told[-1].at - began
    records = sum(each.records for each in told)
    facts = {
        "records": f"{records:,}",
        "batches": f"{len(told):,}",
        "seconds": f"{seconds:,.1f}",
        "records/s": f"{records / seconds if seconds else 0:,.0f}",
        "lag at the end": f"{told[-1].lag:,}",
        "dead letters": f"{sum(each.dead_letters for each in told):,}",
    }
    shown = "".join(f"<span><b>{value}</b>{escape(name)}</span>" for name, value in facts.items())
    moments = f"{_moment(began)} to {_moment(told[-1].at)}"
    return f"<div>{moments}</div><div class='facts'>{shown}</div>"


def _chart(title: str, unit: str, by_query: Mapping[str, Sequence[Progress]], began: float, value: Value) -> str:
    series: dict[str, Points] = {
        query: [(each.at - began, value(each)) for each in progress] for query, progress in by_query.items()
    }
    return line_chart(title, unit, series)


def _sinks(told: Sequence[Progress]) -> list[dict[str, object]]:
    rows: dict[str, int] = {}
    for each in told:
        for sink, count in each.rows.items():
            rows[sink] = rows.get(sink, 0) + count
    return [{"sink": sink, "rows written": count} for sink, count in rows.items()]


def _partitions(by_query: Mapping[str, Sequence[Progress]]) -> list[dict[str, object]]:
    return [
        {
            "query": query,
            "partition": f"{each.topic}-{each.partition}",
            "from": each.start,
            "done": each.done,
            "latest": each.latest,
            "to go": each.to_go,
        }
        for query, progress in by_query.items()
        for each in progress[-1].partitions
    ]


def _batch(each: Progress) -> dict[str, object]:
    return {
        "query": each.query,
        "batch": each.batch,
        "at": _moment(each.at),
        "records": each.records,
        "rows": sum(each.rows.values()),
        "seconds": each.batch_seconds,
        "lag": each.lag,
        "watermark": each.watermark or "",
        "dead letters": each.dead_letters,
    }


def _table(rows: Sequence[Mapping[str, object]]) -> str:
    if not rows:
        return "<p>(none)</p>"
    heads = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    lines = "".join("<tr>" + "".join(map(_cell, row.values())) + "</tr>" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>"


def _cell(value: object) -> str:
    if isinstance(value, int | float):
        return f"<td class='number'>{value:,}</td>"
    return f"<td>{escape(str(value))}</td>"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
