"""The daemon of Python workers for tests, with what their many short tasks need beside what pipelines need."""

from __future__ import annotations

from barnabas.spark import worker_daemon

MODULES = ("barnabas.spark.stream_reader", "barnabas.spark.stream_writer", "barnabas.spark.writer")
OF_TASKS = ("fastavro", "pandas", "barnabas.spark.database.staging", "barnabas.spark.pipeline.formats")

if __name__ == "__main__":
    worker_daemon.main(MODULES, OF_TASKS)
