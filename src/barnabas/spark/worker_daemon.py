"""Spark's daemon of Python workers, with the modules loaded that each worker would otherwise load for itself.

Spark starts it by `spark.python.daemon.module`, with the name of the worker's module. A worker is a fork of the daemon,
and loads for half a second what a task of a pipeline needs. `pyspark.daemon` loads nothing before it forks, because
modules may start threads; those loaded here start none.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

MODULES = ("pyarrow.parquet", "uvloop", "pyspark.sql.worker.plan_data_source_read", "barnabas.spark.reader")
OF_TASKS = ("barnabas.spark.direct.task",)
"""What the workers that run tasks need as well; those that plan do not."""
_TASKS = "pyspark.worker"


def main(more: Sequence[str] = (), more_of_tasks: Sequence[str] = ()) -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is loaded
    from pyspark.daemon import manager

    worker = sys.argv[1]
    of_tasks = (*OF_TASKS, *more_of_tasks) if worker == _TASKS else ()
    for module in (worker, *MODULES, *more, *of_tasks):
        importlib.import_module(module)
    manager()


if __name__ == "__main__":
    main()
