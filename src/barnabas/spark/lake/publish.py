"""What is done on the file system after a commit: files to their places, markers into hours that are complete.

Every step may be done again, so the next run finishes what a crash has left; the staging directory of an entry is
deleted last, and tells by that whether files are left to move. The next version is committed only after that. A run
that opens the lake may do the steps of another that is still alive, so none counts on the one before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from uuid import uuid4

from barnabas.spark.lake.errors import ManifestDamaged
from barnabas.spark.lake.filesystem import FileSystem, Listed
from barnabas.spark.lake.hours import HourDirectories, hour_text
from barnabas.spark.lake.manifest import DataFile, Entry, Move, State, Swap
from barnabas.spark.lake.names import MANIFEST, MARKER, STAGING


def publish(fs: FileSystem, state: State, entry: Entry) -> None:
    """Do what an entry asks for; `state` is the one after it."""
    directories = directories_of(state)
    is_moved = entry.staging is None or not fs.exists(entry.staging)
    if not is_moved:
        changed = {file.hour for file in entry.add if not file.is_late}
        for hour in changed.intersection(entry.marks):
            fs.delete(f"{directories.of(hour)}/{MARKER}")
        for move in entry.moves:
            _move(fs, move)
        if entry.swap is not None:
            _swap(fs, entry.swap)
    _check_files(fs, entry)
    files = state.files_by_hour() if entry.marks else {}
    for hour in entry.marks:
        # Object stores have no empty directories: there, staging is gone with the last file that was moved.
        if not is_moved or not fs.exists(f"{directories.of(hour)}/{MARKER}"):
            _mark(fs, directories.of(hour), marker(hour, state.version, files.get(hour, [])))
    if entry.staging is not None:
        fs.delete(entry.staging)


def clean_staging(fs: FileSystem, left: Iterable[Listed]) -> None:
    """Throw away what nobody can commit any more."""
    for listed in left:
        fs.delete(f"{STAGING}/{listed.name}")


def directories_of(state: State) -> HourDirectories:
    return HourDirectories(state.table.date_name, state.table.hour_name) if state.table else HourDirectories()


def marker(hour: int, version: int, files: list[DataFile]) -> bytes:
    """What the marker of an hour says: how much belongs to it, and since which version."""
    said = {"hour": hour_text(hour), "rows": sum(file.rows for file in files), "files": len(files), "version": version}
    return json.dumps(said).encode() + b"\n"


def _move(fs: FileSystem, move: Move) -> None:
    if not fs.exists(move.source):
        return
    if not fs.rename(move.source, move.target) and fs.exists(move.source):
        # Of the same offsets, and in no manifest: a version that was removed had brought it.
        fs.delete(move.target)
        fs.rename(move.source, move.target)


def _check_files(fs: FileSystem, entry: Entry) -> None:
    """That nothing is left to move does not mean that it has arrived: somebody may have emptied staging."""
    for file in entry.add:
        if not fs.exists(file.path):
            raise ManifestDamaged(
                f"{fs.root}/{file.path} is in the manifest, and is neither there nor in {STAGING}; put it back, or "
                f"remove {entry.version:020}.* from {fs.root}/{MANIFEST}, if nothing newer is there: then the load "
                "goes on before it"
            )


def _swap(fs: FileSystem, swap: Swap) -> None:
    """Two renames with nothing in between: for that moment the directory is not there, but never half there."""
    if not fs.exists(swap.new):
        return
    old = f"{swap.old}-{uuid4().hex}"
    if fs.exists(swap.place):
        fs.rename(swap.place, old)
    if not fs.exists(swap.new):  # another run was faster, and what has just been taken away is what it had put there
        fs.rename(old, swap.place)
    elif not fs.rename(swap.new, swap.place) and fs.exists(swap.new):
        raise ManifestDamaged(f"{fs.root}/{swap.place} was written by somebody else while it was compacted")


def _mark(fs: FileSystem, directory: str, content: bytes) -> None:
    written = f"{STAGING}/marker-{uuid4().hex}"
    fs.write(written, content)
    if not fs.rename(written, f"{directory}/{MARKER}"):
        fs.delete(f"{directory}/{MARKER}")
        fs.rename(written, f"{directory}/{MARKER}")
