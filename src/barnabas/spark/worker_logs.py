"""Warnings of the processes that Spark starts: nobody sets up logging there, and a library alone is silent."""

from __future__ import annotations

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
