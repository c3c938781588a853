"""What the Python processes that Spark starts need, and Spark does not give them."""

from __future__ import annotations

import gc
import logging

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _Stderr(logging.StreamHandler):  # type: ignore[type-arg]
    """Ours, to know it again."""


def show_warnings() -> None:
    """Let warnings go to stderr, which Spark copies to its own log, unless somebody has set up logging."""
    ours = logging.getLogger("barnabas")
    if logging.getLogger().handlers or any(isinstance(handler, _Stderr) for handler in ours.handlers):
        return
    handler = _Stderr()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter(_FORMAT))
    ours.addHandler(handler)


def spare_loaded_modules() -> None:
    """Keep the garbage collector from what a task's process has loaded, which stays as long as the process.

    Spark collects after every task, before the process takes the next one: 50 ms that a small task would wait for.
    """
    from pyspark import TaskContext

    if TaskContext.get() is not None and gc.get_freeze_count() == 0:
        gc.freeze()
