"""Warnings of Spark's Python processes are seen, once each, unless the process has its own logging."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import logging
from barnabas.spark.worker_logs import show_warnings
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
