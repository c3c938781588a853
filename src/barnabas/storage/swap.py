"""Putting a cleaned segment in the place of those that it was made from, so that a crash leaves the old or the new.

    00000000000000000000.log.cleaned      being written, then synced; at start it is removed
    00000000000000000000.log.swap         counts from this rename on; at start the swap is brought to its end

The indexes are renamed before the log file both times. So `.log.swap` tells that the segment is whole, and it is gone
only when nothing is left to do. The last batch of what a segment replaces is kept in it, if only its header; so its
last offset tells, after a crash, which segments it was to replace.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from barnabas.core.seams import Disk
from barnabas.storage.segment import INDEX_SUFFIXES, LOG_SUFFIX, Segment, base_name

if TYPE_CHECKING:
    from barnabas.storage.log import Log

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
_IN_ORDER = (*INDEX_SUFFIXES, LOG_SUFFIX)


def replace_segments(log: Log, old: list[Segment], size: int) -> None:
    """Let the cleaned segment, whose files are synced, take over from sealed segments of a log."""
    disk, directory, base_offset = log.disk, log.directory, old[0].base_offset
    _rename_all(disk, f"{directory}/{base_name(base_offset)}", CLEANED_SUFFIX, SWAP_SUFFIX)
    log.discard(old, keep_snapshot_at=base_offset)
    _rename_all(disk, f"{directory}/{base_name(base_offset)}", SWAP_SUFFIX, "")
    log.segments.replace(old, Segment(disk, directory, base_offset, old[-1].created_ms, size))


def remove_cleaned(disk: Disk, directory: str, base_offsets: Iterable[int]) -> None:
    """Remove what was written for a swap that will not be."""
    for base_offset in base_offsets:
        for kind in _IN_ORDER:
            path = f"{directory}/{base_name(base_offset)}{kind}{CLEANED_SUFFIX}"
            if disk.exists(path):
                disk.remove(path)


def finish_swaps(disk: Disk, directory: str) -> None:
    """Bring to its end what a crash has interrupted, or undo it."""
    names = disk.list_dir(directory)
    for name in names:
        if name.endswith(CLEANED_SUFFIX):
            disk.remove(f"{directory}/{name}")
    begun = [name for name in names if name.endswith(SWAP_SUFFIX)]
    whole = {name[:20] for name in begun if name == f"{name[:20]}{LOG_SUFFIX}{SWAP_SUFFIX}"}
    for name in begun:
        if name[:20] not in whole:
            disk.remove(f"{directory}/{name}")
    present = [int(name[: -len(LOG_SUFFIX)]) for name in names if name.endswith(LOG_SUFFIX)]
    for name in sorted(whole):
        _finish_swap(disk, directory, int(name), present)


def _finish_swap(disk: Disk, directory: str, base_offset: int, present: list[int]) -> None:
    path = f"{directory}/{base_name(base_offset)}"
    size = disk.size(path + LOG_SUFFIX + SWAP_SUFFIX)
    end_offset = Segment(disk, directory, base_offset, 0, size, SWAP_SUFFIX).read_next_offset()
    for replaced in present:
        if base_offset < replaced < end_offset:
            for old in Segment(disk, directory, replaced, 0).paths():
                disk.remove(old)
    for kind in INDEX_SUFFIXES:  # an index without a successor may be of the old segment; a missing one is rebuilt
        if disk.exists(path + kind) and not disk.exists(path + kind + SWAP_SUFFIX):
            disk.remove(path + kind)
    _rename_all(disk, path, SWAP_SUFFIX, "")


def _rename_all(disk: Disk, path: str, old_suffix: str, new_suffix: str) -> None:
    for kind in _IN_ORDER:
        if disk.exists(path + kind + old_suffix):
            disk.rename(path + kind + old_suffix, path + kind + new_suffix)
