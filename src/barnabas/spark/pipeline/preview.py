"""What a run would do now, without doing it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.spark.pipeline.job import Job
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
    rows = [
        {
            "sink": each.sink,
            "view": each.view,
            "fed_by": each.fed_by,
            "to_read": to_go(at[each.sink], latest) if each.sink in at else None,
            "path": each.path.value,
            "reason": each.reason,
        }
        for each in feeds.described()
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
