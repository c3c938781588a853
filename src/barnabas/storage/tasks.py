"""What a log has done for it in the background, by the log manager in a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from barnabas.core.seams import Disk

if TYPE_CHECKING:
    from barnabas.storage.log import Log


class LogTasks(Protocol):
    def segment_sealed(self, log: Log) -> None:
        """There is something to flush that will not change any more."""
        ...

    def checkpoint_soon(self, log: Log) -> None:
        """The log start offset or the recovery point changed in a way that a restart must know of."""
        ...

    def remove_later(self, paths: list[str], delay_ms: int) -> None: ...


class NoBackground:
    """For a log that nobody looks after: files are removed at once, the rest waits for the log to be closed."""

    __slots__ = ("_disk",)

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def segment_sealed(self, log: Log) -> None:
        pass

    def checkpoint_soon(self, log: Log) -> None:
        pass

    def remove_later(self, paths: list[str], delay_ms: int) -> None:
        for path in paths:
            self._disk.remove(path)
