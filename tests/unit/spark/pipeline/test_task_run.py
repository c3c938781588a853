"""An offline load that goes on after it was cut off tells how much is left, wherever the gaps are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from barnabas.client.metadata import TopicPartition
from barnabas.spark.direct.unsure import UnsureRecords
from barnabas.spark.pipeline.definition_file import parse_pipeline
from barnabas.spark.pipeline.offset_run import OffsetSink
from barnabas.spark.pipeline.paths import Choice
from barnabas.spark.pipeline.paths import Path as RowPath
from barnabas.spark.pipeline.progress import Progress
from barnabas.spark.pipeline.sinks import Batch, Offsets, Written
from barnabas.spark.pipeline.state import State
from barnabas.spark.pipeline.stopping import StopRequest
from barnabas.spark.pipeline.task_run import TaskRun
from barnabas.spark.pipeline.topics import Layout
from barnabas.spark.ranges import OffsetRange

ORDERS = """
name: shop
cluster: {bootstrap_servers: "nowhere:1"}
sources: [{name: orders, topics: [orders], schema: id INT}]
sinks: [{name: lake, kind: lake, from: orders, path: lake}]
"""
ZERO = ("orders", 0)


class Gapped:
    """Has offsets 10 to 30 of a load that began at 0."""

    name = "lake"

    def done_offsets(self) -> Offsets:
        return {ZERO: 0}

    def missing(self, batch: Batch) -> Sequence[OffsetRange]:
        return [OffsetRange(*ZERO, 0, 10), OffsetRange(*ZERO, 30, 35)]

    def write_tasks(
        self,
        frame_of: Callable[[Batch], Any],
        batch: Batch,
        max_records: int,
        is_stopped: Callable[[], bool],
        on_done: Callable[[tuple[OffsetRange, ...], Written], None],
    ) -> int:
        for piece in self.missing(batch):
            frame_of(Batch(0, "", {ZERO: piece.start}, {ZERO: piece.end}))
            on_done((piece,), Written(piece.size))
        return 15


def test_a_load_that_goes_on_ends_without_lag(tmp_path: Path) -> None:
    told: list[Progress] = []
    topics = SimpleNamespace(latest=lambda layout: {ZERO: 35}, start=lambda *_: {ZERO: 0}, earliest=lambda _: {ZERO: 0})
    job: Any = SimpleNamespace(
        unsure=UnsureRecords(),
        at_start=(Layout({"orders": [TopicPartition(*ZERO)]}, {}), {ZERO: 35}),
        pipeline=parse_pipeline(ORDERS, "shop.yaml", {}),
        topics=topics,
        state=State(tmp_path),
        layout=lambda: Layout({"orders": [TopicPartition(*ZERO)]}),
        reporter=SimpleNamespace(report=told.append),
        stop=StopRequest(),
        frames=SimpleNamespace(of_ranges=lambda *_: {"orders": None}),
    )
    sink: Any = Gapped()
    TaskRun(job, OffsetSink(sink, "orders", ("orders",), Choice(RowPath.SPARK, "a test"))).run()
    assert [(each.records, each.lag) for each in told] == [(10, 5), (5, 0)]
    assert [(at.start, at.done) for at in told[-1].partitions] == [(20, 35)]
    assert [each.ranges for each in told] == [(OffsetRange(*ZERO, 0, 10),), (OffsetRange(*ZERO, 30, 35),)]
