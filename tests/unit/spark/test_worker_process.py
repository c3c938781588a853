"""Spark's Python processes: their warnings are seen, and they collect no garbage where there can be none."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import logging
from barnabas.spark.worker_process import show_warnings
{setup}
show_warnings()
show_warnings()
logging.getLogger("barnabas.spark.stream_planner").warning("orders-0 is gone")
logging.getLogger("barnabas.client").info("connected")
"""


@pytest.mark.parametrize(
    ("setup", "printed"),
    [
        ("", "WARNING barnabas.spark.stream_planner: orders-0 is gone\n"),
        ("logging.basicConfig(format='%(message)s')", "orders-0 is gone\n"),
        ("logging.getLogger().addHandler(logging.NullHandler())", ""),
    ],
)
def test_a_warning_is_printed_once(setup: str, printed: str) -> None:
    program = [sys.executable, "-c", PROGRAM.format(setup=setup)]
    told = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True).stderr

    assert told.endswith(printed)
    assert told.count("\n") == printed.count("\n")


COLLECTOR = """
import gc
from pyspark import TaskContext
from barnabas.spark.worker_process import spare_loaded_modules
{setup}
spare_loaded_modules()
print(gc.get_freeze_count() > 10_000)
"""


@pytest.mark.parametrize(("setup", "spared"), [("", "False"), ("TaskContext._getOrCreate()", "True")])
def test_only_the_process_of_a_task_spares_what_it_has_loaded(setup: str, spared: str) -> None:
    program = [sys.executable, "-c", COLLECTOR.format(setup=setup)]
    told = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True).stdout

    assert told.strip() == spared
