"""How far the batch under way is: Spark's tasks, looked at once a second, for those who show them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EVERY_S = 1.0


@contextmanager
def watching(spark: SparkSession, tell: Callable[[int, int], None]) -> Iterator[None]:
    """Tell how many tasks are done, of how many, while any run."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_EVERY_S):
            done, total = tasks_now(spark)
            if total:
                tell(done, total)

    thread = threading.Thread(target=watch, name="pipeline-tasks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def tasks_now(spark: SparkSession) -> tuple[int, int]:
    """Of the stages that run now: tasks that are done, and all."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    running = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in running), sum(stage.numTasks for stage in running)
