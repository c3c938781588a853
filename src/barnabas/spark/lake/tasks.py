"""A load in tasks: some offsets of one or more partitions of a topic, each committed by itself.

Partitions are cut at multiples of `max_records`, wherever a load begins, so that the same offsets always make the same
files; small pieces of neighbouring partitions share a task. A task that fails is done again alone by the next run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import TypeVar

from barnabas.spark.pipeline.sinks import Written
from barnabas.spark.ranges import OffsetRange

log = logging.getLogger(__name__)

Rows = TypeVar("Rows")
Task = tuple[OffsetRange, ...]
OnDone = Callable[[Task, Written], None]
"""Called for each task that is committed, with what it has added."""


def plan_tasks(missing: Iterable[OffsetRange], max_records: int) -> list[Task]:
    """Tasks of at most `max_records` offsets, each partition at most once in a task."""
    tasks: list[list[OffsetRange]] = []
    for piece in (piece for wanted in sorted(missing) for piece in _cut(wanted, max_records)):
        last = tasks[-1] if tasks else [piece]
        fits = sum(one.size for one in last) + piece.size <= max_records
        if fits and last[-1].topic == piece.topic and last[-1].partition != piece.partition:
            last.append(piece)
        else:
            tasks.append([piece])
    return list(map(tuple, tasks))


def run_tasks(
    tasks: Sequence[Task],
    rows_of: Callable[[Task], Rows],
    write: Callable[[Rows, Task], Written],
    *,
    parallel: int,
    is_stopped: Callable[[], bool],
    on_done: OnDone,
) -> int:
    """Write the rows of all tasks, some at a time, and return how many there were.

    Rows are made in this thread, and written in others. A task that fails is logged, and stops no other; then the error
    of the first is raised. After a stop only those that run are finished.
    """
    total = 0
    failed: dict[Task, BaseException] = {}
    waiting = iter(tasks)
    running: dict[Future[Written], Task] = {}
    with ThreadPoolExecutor(parallel, "lake-load") as threads:
        while True:
            while len(running) < parallel and not is_stopped() and (task := next(waiting, None)) is not None:
                try:
                    running[threads.submit(write, rows_of(task), task)] = task
                except Exception as problem:
                    failed[task] = _told(task, problem)
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                task = running.pop(future)
                error = future.exception()
                if error is None:
                    total += future.result().rows
                    on_done(task, future.result())
                else:
                    failed[task] = _told(task, error)
    for task in sorted(failed):
        raise failed[task]
    return total


def _told(task: Task, problem: BaseException) -> BaseException:
    log.error("%s failed, and is left for the next run: %s", ", ".join(map(str, task)), problem)
    return problem


def _cut(wanted: OffsetRange, max_records: int) -> Iterator[OffsetRange]:
    start = wanted.start
    while start < wanted.end:
        end = min(wanted.end, (start // max_records + 1) * max_records)
        yield replace(wanted, start=start, end=end)
        start = end
