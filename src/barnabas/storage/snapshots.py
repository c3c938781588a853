"""The snapshot files of one log's producer state, and how state is rebuilt from them.

There is one at the base offset of every segment but the first, so that a truncation need not read far, and one at the
end of a log that was closed cleanly. A snapshot is taken in memory and written with the next flush, before the
recovery point passes it. Losing one costs time only: an older one and the batches after it give the same state.
"""

from __future__ import annotations

from barnabas.core import logs
from barnabas.core.seams import Disk
from barnabas.storage.producer_state import SNAPSHOT_SUFFIX, CorruptSnapshot, ProducerStates
from barnabas.storage.segment import base_name

_log = logs.get_logger(__name__)


class Snapshots:
    __slots__ = ("_directory", "_disk", "_offsets", "_unsaved")

    def __init__(self, disk: Disk, directory: str, offsets: set[int]) -> None:
        self._disk = disk
        self._directory = directory
        self._offsets = offsets  # of the files that are there
        self._unsaved: dict[int, bytes] = {}

    def path(self, offset: int) -> str:
        return f"{self._directory}/{base_name(offset)}{SNAPSHOT_SUFFIX}"

    def take(self, offset: int, producers: ProducerStates) -> None:
        """Keep the state as it is before `offset`, for the next flush to write."""
        if offset not in self._offsets:
            self._unsaved[offset] = producers.encode()

    def unsaved(self) -> list[tuple[str, bytes]]:
        """Path and content of the files to write; `saved` tells that they were."""
        return [(self.path(offset), data) for offset, data in self._unsaved.items()]

    def saved(self, paths: list[str]) -> None:
        for offset in [offset for offset in self._unsaved if self.path(offset) in paths]:
            del self._unsaved[offset]
            self._offsets.add(offset)

    def distrust(self, paths: list[str]) -> None:
        """Remove snapshots that were written while the batches that they tell of were cut off."""
        for path in paths:
            if path.endswith(SNAPSHOT_SUFFIX) and self._disk.exists(path):
                self._disk.remove(path)

    def forget(self, offset: int) -> str | None:
        """Drop the snapshot of a segment that is deleted; the file that is to go, if there is one."""
        self._unsaved.pop(offset, None)
        if offset not in self._offsets:
            return None
        self._offsets.remove(offset)
        return self.path(offset)

    def truncate_to(self, offset: int) -> None:
        """Remove the snapshots that know of batches at or after `offset`."""
        self._unsaved = {at: data for at, data in self._unsaved.items() if at <= offset}
        for later in [at for at in self._offsets if at > offset]:
            self._offsets.remove(later)
            self._disk.remove(self.path(later))

    def remove_strays(self, base_offsets: set[int]) -> None:
        """Remove what belongs to no segment, but for the newest: it is that of a clean stop."""
        for offset in self._offsets - base_offsets - {max(self._offsets, default=0)}:
            self._offsets.remove(offset)
            self._disk.remove(self.path(offset))

    def restore_latest(self, producers: ProducerStates, end_offset: int) -> int:
        """Load the newest readable snapshot that is not beyond `end_offset`; its offset, or -1 if there is none."""
        producers.clear()
        for offset in sorted(self._offsets | self._unsaved.keys(), reverse=True):
            if offset <= end_offset:
                try:
                    producers.restore(self._unsaved.get(offset) or self._disk.read_bytes(self.path(offset)))
                    return offset
                except CorruptSnapshot as error:
                    _log.warning("snapshot skipped", path=self.path(offset), problem=error)
        return -1
