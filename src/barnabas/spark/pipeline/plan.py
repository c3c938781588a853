"""Which offsets the next batch covers. The sinks say how far they are; the smallest of that is where it starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.spark.admission import within
from barnabas.spark.pipeline.sinks import Batch, Offsets
from barnabas.spark.pipeline.state import Plan


def position(done: Offsets | None, origin: Offsets, there: Offsets) -> dict[tuple[str, int], int]:
    """Where a sink goes on: what it has done, and the origin for partitions of which it knows nothing.

    A sink that is new begins with what is still `there`, the earliest offsets now.
    """
    if is_new(done, origin):
        return {partition: max(first, there.get(partition, first)) for partition, first in origin.items()}
    return {partition: (done or {}).get(partition, first) for partition, first in origin.items()}


def is_new(done: Offsets | None, origin: Offsets) -> bool:
    """Whether a sink has nothing of any partition that it reads; of topics that it read before it may have much."""
    return not any(partition in origin for partition in done or ())


def earliest(positions: Iterable[Offsets]) -> dict[tuple[str, int], int]:
    """By partition, where the sink that is furthest behind goes on."""
    found: dict[tuple[str, int], int] = {}
    for offsets in positions:
        for partition, offset in offsets.items():
            found[partition] = min(offset, found.get(partition, offset))
    return found


def next_plan(number: int, start: Offsets, latest: Offsets, tables: Offsets, max_records: int | None) -> Plan | None:
    """The next batch, at most `max_records` offsets long; None where nothing is to be read."""
    end = {partition: max(first, latest.get(partition, first)) for partition, first in start.items()}
    if max_records is not None:
        end = within(max_records, start, end)
    plan = Plan(number, start, end, tables)
    return plan if plan.size else None


def batch_of(plan: Plan, at: Offsets, query_id: str) -> Batch | None:
    """A sink's part of a plan: from where it is to the plan's end; None where it has all of that."""
    behind = {partition: offset for partition, offset in at.items() if offset < plan.end.get(partition, offset)}
    if not behind:
        return None
    return Batch(plan.number, query_id, behind, {partition: plan.end[partition] for partition in behind})


def plans_ahead(number: int, start: Offsets, latest: Offsets, max_records: int | None) -> list[Plan]:
    """All batches up to the latest offsets, for those who want to see them beforehand."""
    plans: list[Plan] = []
    while (plan := next_plan(number + len(plans), start, latest, {}, max_records)) is not None:
        plans.append(plan)
        start = plan.end
    return plans


def to_go(at: Offsets, latest: Mapping[tuple[str, int], int]) -> int:
    return sum(max(0, latest.get(partition, offset) - offset) for partition, offset in at.items())
