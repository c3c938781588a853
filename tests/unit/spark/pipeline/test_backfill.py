"""A backfill keeps away from a pipeline that runs, and a span is the same the second time."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from barnabas.spark.pipeline.backfill import backfill_of, find_span, run_backfill
from barnabas.spark.pipeline.definition_file import parse_pipeline
from barnabas.spark.pipeline.lock import AlreadyRunning, run_lock
from barnabas.spark.pipeline.reporters import Reporters
from barnabas.spark.pipeline.state import State
from barnabas.spark.pipeline.stopping import StopRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOP = """
name: shop
cluster: {bootstrap_servers: "nowhere:1"}
sources: [{name: orders, topics: [orders], schema: id INT}]
sinks: [{name: lake, kind: lake, from: orders, path: lake}]
"""
SPAN = ("2026-01-01", "2126-01-01")


def test_a_backfill_is_refused_while_the_pipeline_runs(tmp_path: Path) -> None:
    state = State(tmp_path)
    backfill = backfill_of(parse_pipeline(SHOP, "shop.yaml", {}), state, *SPAN)
    no_spark = cast("SparkSession", None)
    with (
        run_lock(state.lock_file, "shop"),
        pytest.raises(AlreadyRunning, match="pipeline 'shop' is run already, by process"),
    ):
        run_backfill(backfill, no_spark, functions_in=tmp_path, reporter=Reporters(), stop=StopRequest())


def test_a_span_that_reaches_into_the_future_ends_where_the_topic_ended_at_first(tmp_path: Path) -> None:
    backfill = backfill_of(parse_pipeline(SHOP, "shop.yaml", {}), State(tmp_path), *SPAN)
    ends = {SPAN[0]: {("orders", 0): 3}, SPAN[1]: {("orders", 0): 10}}
    topics = SimpleNamespace(at_time=lambda layout, time: ends[time])
    job: Any = SimpleNamespace(state=backfill.state, topics=topics, layout=lambda: None)
    first = find_span(job, backfill)
    assert first == ({("orders", 0): 3}, {("orders", 0): 10})
    ends[SPAN[1]] = {("orders", 0): 12}
    assert find_span(job, backfill) == first
