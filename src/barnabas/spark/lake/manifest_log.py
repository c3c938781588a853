"""The manifest on the file system: a file for each entry, and now and then a checkpoint.

An entry becomes visible by one rename to the name of its version, which fails if that version is there already: of two
runs that commit at once, one is refused. (Local file systems without hard links have no such rename; there, the lock of
the pipeline keeps two runs apart.) Entries older than the last but one checkpoint are removed; a run
that has been away for so long that its next version was among them is told by those that came after.
"""

from __future__ import annotations

from uuid import uuid4

from barnabas.spark.lake.errors import LakeError, ManifestDamaged, ManifestMoved
from barnabas.spark.lake.filesystem import FileSystem
from barnabas.spark.lake.manifest import Entry, State
from barnabas.spark.lake.manifest_json import decode_entry, decode_state, encode_entry, encode_state
from barnabas.spark.lake.names import MANIFEST, STAGING, checkpoint_name, version_name

CHECKPOINT_EVERY = 20


class ManifestLog:
    """Owned by one run at a time; keeps nothing in memory."""

    def __init__(self, fs: FileSystem, checkpoint_every: int = CHECKPOINT_EVERY) -> None:
        self._fs = fs
        self._checkpoint_every = checkpoint_every

    def read(self) -> tuple[State, Entry | None]:
        """The state now, and the entry that led to it; no entry: there is no lake yet."""
        entries, checkpoints = self._versions()
        if not entries:
            if checkpoints:
                raise ManifestDamaged(f"{self._where('')} has checkpoints and no entries; restore it from a copy")
            return State(), None
        last = max(entries)
        state = self._newest_checkpoint(checkpoints, entries, last)
        entry = None
        for version in range(min(state.version + 1, last), last + 1):
            if version not in entries:
                raise ManifestDamaged(f"{self._where(version_name(version))} is missing; restore it from a copy")
            entry = self._entry(version, last)
            state = state.after(entry) if version > state.version else state
        return state, entry

    def append(self, state: State, entry: Entry) -> State:
        """Commit an entry; when this returns, or if the file is there after a crash, it is done."""
        after = state.after(entry)
        data = encode_entry(entry)
        written = f"{STAGING}/manifest-{uuid4().hex}"
        target = f"{MANIFEST}/{version_name(entry.version)}"
        self._fs.write(written, data)
        is_taken = not self._fs.rename(written, target) and self._fs.read(target) != data
        if is_taken or max(self._versions()[0]) > entry.version:
            raise moved(self._fs)
        if entry.version % self._checkpoint_every == 0:
            self._write_checkpoint(after)
        return after

    def _entry(self, version: int, last: int) -> Entry:
        path = f"{MANIFEST}/{version_name(version)}"
        try:
            return decode_entry(self._fs.read(path), self._where(version_name(version)))
        except ManifestDamaged as damage:
            hint = "restore it from a copy"
            if version == last:
                hint += ", or remove it, and a checkpoint of its number: then the load goes on before it, and `audit` "
                hint += "names the files it had brought"
            raise ManifestDamaged(f"{damage}; {hint}") from None

    def _versions(self) -> tuple[set[int], set[int]]:
        """Of entries and of checkpoints; whatever else lies there is left alone."""
        names = [listed.name for listed in self._fs.list(MANIFEST)]
        numbers = {name: int(name[:20]) for name in names if name[:20].isdecimal()}
        entries = {number for name, number in numbers.items() if name == version_name(number)}
        return entries, {number for name, number in numbers.items() if name == checkpoint_name(number)}

    def _newest_checkpoint(self, checkpoints: set[int], entries: set[int], last: int) -> State:
        """The newest that is whole; one that is damaged is not needed as long as the entries are there."""
        damage: LakeError | None = None
        for version in sorted(checkpoints, reverse=True):
            if version > last:
                raise ManifestDamaged(f"{self._where(version_name(version))} is missing; restore it from a copy")
            name = checkpoint_name(version)
            try:
                return decode_state(self._fs.read(f"{MANIFEST}/{name}"), self._where(name))
            except ManifestDamaged as found:
                damage = found
        if damage is not None and 1 not in entries:
            raise ManifestDamaged(f"{damage}; restore it from a copy")
        return State()

    def _write_checkpoint(self, state: State) -> None:
        written = f"{STAGING}/checkpoint-{uuid4().hex}"
        self._fs.write(written, encode_state(state))
        self._fs.rename(written, f"{MANIFEST}/{checkpoint_name(state.version)}")
        oldest_needed = state.version - self._checkpoint_every
        for name_of, versions in zip((version_name, checkpoint_name), self._versions()):
            for version in sorted(versions):
                if version < oldest_needed:
                    self._fs.delete(f"{MANIFEST}/{name_of(version)}")

    def _where(self, name: str) -> str:
        return f"{self._fs.root}/{MANIFEST}/{name}"


def moved(fs: FileSystem) -> ManifestMoved:
    return ManifestMoved(
        f"another run has opened {fs.root} since this one did; what this one has committed stays, and it adds no more"
    )
