"""Chooses the Python of Spark's workers: the running one, unless the user has set `PYSPARK_PYTHON`.

Spark takes the `python3` of the `PATH`. Without activation (`/venv/bin/python job.py`), that is another
Python, which has no Barnabas, and `format("barnabas")` is not found. Spark reads the choice when its context starts, so
it is made when `barnabas.spark` is imported; `adopt` brings it to a context that was there before.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

VARIABLE = "PYSPARK_PYTHON"
_SPARKS_DEFAULT = "python3"


def choose() -> None:
    """Set `PYSPARK_PYTHON` where it is not set and `python3` is not of the running environment."""
    if sys.executable and not _is_here(shutil.which(_SPARKS_DEFAULT)):
        os.environ.setdefault(VARIABLE, sys.executable)


def adopt(context: SparkContext) -> None:
    """Let a context that started with Spark's default use what was chosen since."""
    if context.pythonExec == _SPARKS_DEFAULT:
        context.pythonExec = os.environ.get(VARIABLE, _SPARKS_DEFAULT)


def _is_here(python: str | None) -> bool:
    """Whether it is in the directory of the running one: the file itself is often a link to one outside."""
    return python is not None and Path(python).parent.resolve() == Path(sys.executable).parent.resolve()
