"""Spark's daemon of Python workers, with the modules loaded that every worker would otherwise load for itself.

A test run starts hundreds of workers, each for a task of milliseconds after a second of imports. `pyspark.daemon` loads
nothing before it forks because modules may start threads; those loaded here are told not to.
"""

from __future__ import annotations

import importlib
import os
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is loaded

MODULES = (
    "pyarrow.parquet",
    "uvloop",
    "pyspark.sql.worker.plan_data_source_read",
    "barnabas.spark.reader",
    "barnabas.spark.stream_reader",
    "barnabas.spark.stream_writer",
    "barnabas.spark.writer",
)
OF_TASKS = ("fastavro", "pandas", "barnabas.spark.database.staging", "barnabas.spark.pipeline.formats")
"""What the workers that run tasks need as well; those that plan do not."""


def main() -> None:
    from pyspark.daemon import manager

    worker = sys.argv[1]
    for module in (worker, *MODULES, *(OF_TASKS if worker == "pyspark.worker" else ())):
        importlib.import_module(module)
    manager()


if __name__ == "__main__":
    main()
