"""Queries with state whose Python process comes up too late for Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from barnabas.spark.pipeline.definition import Emit, Mode
from barnabas.spark.pipeline.stopping import StopRequest
from barnabas.spark.pipeline.stream_run import StreamRun, StreamSink

LATE = RuntimeError("Python worker failed to connect back.")


def run_of(*failures: Exception | None) -> tuple[StreamRun, MagicMock]:
    """A run whose query ends at once, each time it is started, with what is given; and how it is started."""
    start = MagicMock(side_effect=[ended(failure) for failure in failures])
    writer = MagicMock()
    for step in (writer.foreachBatch, writer.outputMode, writer.trigger, writer.option, writer.queryName):
        step.return_value = writer
    writer.start = start
    job: Any = SimpleNamespace(pipeline=SimpleNamespace(name="p", mode=Mode.AVAILABLE_NOW), stop=StopRequest())
    target = StreamSink(MagicMock(), "view", Emit.FINAL)
    run = StreamRun(job, [target])
    [(_, query)] = run._queries
    query.start(MagicMock(writeStream=writer), "checkpoint")
    return run, start


def ended(failure: Exception | None) -> MagicMock:
    return MagicMock(isActive=False, recentProgress=[], exception=lambda: failure)


def test_a_query_that_spark_did_not_wait_for_is_started_again() -> None:
    run, start = run_of(LATE, LATE, None)
    run.wait()
    assert start.call_count == 3


@pytest.mark.parametrize(("failures", "starts"), [([LATE] * 9, 5), ([RuntimeError("bad"), None], 1)])
def test_what_goes_wrong_for_good_is_told(failures: list[Exception | None], starts: int) -> None:
    run, start = run_of(*failures)
    with pytest.raises(RuntimeError):
        run.wait()
    assert start.call_count == starts


def test_a_run_that_is_closed_starts_nothing_again() -> None:
    run, start = run_of(LATE, None)
    with pytest.raises(RuntimeError, match="connect back"):
        run.close()
    assert start.call_count == 1
