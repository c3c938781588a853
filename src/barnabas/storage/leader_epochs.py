"""Which leader epoch began at which offset (`leader-epoch-checkpoint`).

    0                       version
    2                       number of entries
    0 0                     epoch, start offset
    3 1042

A follower that comes back asks its leader where its last epoch ended, and cuts there: epochs, not watermarks, tell
which records are of the common past (KIP-101). Both columns rise.

The file is written when a segment is sealed and on a clean stop; the epochs of later batches are found again by the
scan that follows a crash.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import NamedTuple

FILE_NAME = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1
_VERSION = "0"


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class LeaderEpochs:
    __slots__ = ("entries", "latest", "saved")

    def __init__(self, entries: list[EpochEntry] | None = None) -> None:
        self.entries: list[EpochEntry] = entries or []
        self.latest = self.entries[-1].epoch if self.entries else UNDEFINED_EPOCH
        """The newest epoch that is known; UNDEFINED_EPOCH if none is."""
        self.saved = True
        """Whether the file holds all of this."""

    @classmethod
    def decode(cls, data: bytes) -> LeaderEpochs:
        version, count, *lines = data.decode().splitlines()
        rows = [tuple(map(int, line.split())) for line in lines]
        if version != _VERSION or len(rows) != int(count) or any(len(row) != 2 for row in rows):
            raise ValueError(f"version {version} with {len(rows)} of {count} entries")
        entries = [EpochEntry(*row) for row in rows]
        if any(one.epoch >= other.epoch or one.start_offset >= other.start_offset for one, other in pairwise(entries)):
            raise ValueError("the entries do not rise")
        return cls(entries)

    def encode(self) -> bytes:
        lines = [_VERSION, str(len(self.entries)), *(f"{epoch} {offset}" for epoch, offset in self.entries)]
        return "".join(f"{line}\n" for line in lines).encode()

    def assign(self, epoch: int, start_offset: int) -> None:
        """`epoch` begins at `start_offset`, unless it has begun already; what contradicts that is forgotten."""
        entries = self.entries
        if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
            return
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochEntry(epoch, start_offset))
        self._changed()

    def witness(self, epoch: int, offset: int) -> None:
        """A record of `epoch` lies at `offset`: no later epoch can have begun there or before.

        A broker that comes back without its log's end takes itself for the leader that it was, until it hears that it
        is none: for its epoch it then has a beginning that is too early.
        """
        kept = [entry for entry in self.entries if entry.epoch <= epoch or entry.start_offset > offset]
        if len(kept) < len(self.entries):
            self.entries = kept
            self._changed()

    def epoch_of(self, offset: int) -> int:
        """The epoch in which `offset` was or will be written; UNDEFINED_EPOCH below the first entry."""
        slot = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[slot - 1].epoch if slot else UNDEFINED_EPOCH

    def start_of(self, epoch: int) -> int:
        """Where `epoch` began; UNDEFINED_OFFSET if it is not known."""
        for entry in reversed(self.entries):
            if entry.epoch == epoch:
                return entry.start_offset
        return UNDEFINED_OFFSET

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEntry:
        """The greatest epoch here that is not beyond `epoch`, and the offset at which it ended."""
        if epoch == UNDEFINED_EPOCH or epoch > self.latest:
            return EpochEntry(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if epoch == self.latest:
            return EpochEntry(epoch, log_end_offset)
        slot = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch)
        floor = self.entries[slot - 1].epoch if slot else epoch
        return EpochEntry(floor, self.entries[slot].start_offset)

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget the epochs that begin at or after the end of the log."""
        if self.entries and self.entries[-1].start_offset >= end_offset:
            self.entries = [entry for entry in self.entries if entry.start_offset < end_offset]
            self._changed()

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget the epochs that ended before the log begins; the one that lasts begins where the log does."""
        slot = bisect_right(self.entries, start_offset, key=lambda entry: entry.start_offset)
        if slot and self.entries[slot - 1].start_offset < start_offset:
            self.entries[:slot] = [EpochEntry(self.entries[slot - 1].epoch, start_offset)]
            self._changed()

    def clear(self) -> None:
        if self.entries:
            self.entries = []
            self._changed()

    def _changed(self) -> None:
        self.saved = False
        self.latest = self.entries[-1].epoch if self.entries else UNDEFINED_EPOCH
