"""What a run would do now, without doing it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.spark.pipeline.definition import DEAD_LETTERS
from barnabas.spark.pipeline.job import Job
from barnabas.spark.pipeline.offset_run import OffsetSink
from barnabas.spark.pipeline.origin import look_for_origin
from barnabas.spark.pipeline.plan import earliest, plans_ahead, position, to_go
from barnabas.spark.pipeline.runner import sort_sinks
from barnabas.spark.pipeline.sinks import Sink


def preview(job: Job, sinks: Mapping[str, Sink]) -> dict[str, Any]:
    """How each sink is fed and how much lies before it, and the batches with their offsets."""
    feeds = sort_sinks(job, sinks)
    layout = job.layout()
    latest = job.topics.latest(layout)
    origin = look_for_origin(job.pipeline, job.topics, layout, job.state)
    there = job.topics.earliest(layout)
    at = {
        each.sink.name: position(each.sink.look(job.spark), layout.parts(each.sources, origin), there)
        for each in (*feeds.by_offsets, *feeds.by_tasks)
    }
    ways = {"offsets": feeds.by_offsets, "tasks": feeds.by_tasks}
    rows = [
        {"sink": each.sink.name, "view": _view(each), "fed_by": way, "to_read": to_go(at[each.sink.name], latest)}
        | {"path": each.choice.path.value, "reason": each.choice.reason}
        for way, some in ways.items()
        for each in some
    ]
    rows += [
        {
            "sink": each.sink.name,
            "view": each.view,
            "fed_by": "query",
            "to_read": None,
            "path": "spark",
            "reason": "a query with state",
        }
        for each in feeds.streams
    ]
    last = job.state.last_plan()
    first = 0 if last is None else last.number + 1
    plans = plans_ahead(first, earliest(at.values()), latest, job.pipeline.max_records_per_batch)
    batches = [
        {"batch": plan.number, "topic": topic, "partition": number, "from": plan.start[topic, number], "to": end}
        for plan in plans
        for (topic, number), end in sorted(plan.end.items())
        if end > plan.start[topic, number]
    ]
    return {
        "pipeline": job.pipeline.name,
        "sinks": rows,
        "batches": batches,
        "records": sum(plan.size for plan in plans),
    }


def _view(sink: OffsetSink) -> str:
    return sink.view or f"({DEAD_LETTERS})"
