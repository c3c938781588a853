"""How far long work is: a bar with the time that is left, on standard error, and only where that is a terminal."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Protocol


class Unit(Enum):
    RECORDS = "records"
    BYTES = "bytes"


class OnProgress(Protocol):
    def __call__(self, done: int, what: str | None = None) -> None:
        """So much is done in all; `what` says it anew in words."""


@contextmanager
def progress(what: str, total: int | None, unit: Unit) -> Iterator[OnProgress]:
    """Gives what is to be told how far it is; nothing shows for work whose end is not known."""
    if not sys.stderr.isatty() or not total:
        yield lambda done, what=None: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    amount = DownloadColumn() if unit is Unit.BYTES else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done, what=None: bar.update(task, completed=done, description=what)


def file_bytes(descriptor: int) -> int | None:
    """The size of a file; None for what has no size to be told beforehand, such as a pipe or a terminal."""
    status = os.fstat(descriptor)
    return status.st_size if stat.S_ISREG(status.st_mode) else None
