"""Queries with state: how they start, and how their first batch is read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from barnabas.spark.pipeline.definition import Emit, Mode
from barnabas.spark.pipeline.sinks import NOTHING, Written
from barnabas.spark.pipeline.stopping import StopRequest
from barnabas.spark.pipeline.stream_run import StreamRun, StreamSink, size_state

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


@pytest.mark.parametrize(
    ("written", "reads"), [(NOTHING, 1), (Written(0), 0), (Written(5), 0)], ids=["done before", "no rows", "rows"]
)
def test_a_first_batch_is_read_for_its_state_only_if_the_sink_did_not(written: Written, reads: int) -> None:
    run, _ = run_of(None)
    [(target, query)] = run._queries
    sink: Any = target.sink
    sink.write.return_value = written
    frame = MagicMock()
    for number in (0, 1):
        query._write(frame, number)
    assert frame.write.format.call_count == reads


@pytest.mark.parametrize(
    ("master", "is_set", "parts"), [("local[*,4]", False, 3), ("local[*,4]", True, None), ("yarn", False, None)]
)
def test_state_is_in_as_many_parts_as_a_local_machine_has_cores(master: str, is_set: bool, parts: int | None) -> None:
    context = MagicMock(master=master, defaultParallelism=3)
    context.getConf().contains.return_value = is_set
    spark = MagicMock(sparkContext=context)
    size_state(spark)
    calls = [] if parts is None else [(("spark.sql.shuffle.partitions", parts),)]
    assert spark.conf.set.call_args_list == calls
