"""The contract of a metadata store: an ordered list of opaque records, and the claim to be the one who extends it.

A store is outside the broker and outlives it. What a broker holds is a *session*: its own view of the store, opened
under its broker id, which also carries its claim to be the controller. Records are counted one by one, so an index
names one record; they come and go in batches, each written by one append, all or nothing.

Safety rests on two comparisons that the store makes in one step with the write: the epoch must be the latest that
anybody won, and the index must be where the list ends. Everything else (who is alive, when a watch fires) may be late.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Protocol

from barnabas.core.dataclass import dataclass

MAX_APPEND_BYTES = 512 * 1024
"""The most that one append or one snapshot chunk may hold when packed: half of what a znode takes by default."""

_LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True)
class Batch:
    """What one append wrote. `index` is that of its first record."""

    index: int
    epoch: int
    append_id: bytes
    records: tuple[bytes, ...]

    @property
    def next_index(self) -> int:
        return self.index + len(self.records)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Stands for every record below `index`."""

    index: int
    chunks: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The records asked for are gone; a snapshot stands for everything below `first_index`."""

    first_index: int


@dataclass(frozen=True, slots=True)
class Claim:
    """The latest epoch that was won. `holder` is None once its session is known to be over, or nobody ever won."""

    epoch: int
    holder: int | None


@dataclass(frozen=True, slots=True)
class Done:
    """Written, and it will survive whatever the store survives. `next_index` is the end of the list."""

    next_index: int


class Refusal(enum.Enum):
    STALE_EPOCH = "another controller has won a higher epoch"
    INDEX_MOVED = "the list does not end where the writer thought"


@dataclass(frozen=True, slots=True)
class Refused:
    """Not written, and never will be."""

    reason: Refusal


@dataclass(frozen=True, slots=True)
class Unknown:
    """Perhaps written, now or a little later. Read again and look for the append id before answering anybody."""

    detail: str


Answer = Done | Refused | Unknown


class StoreUnavailable(Exception):
    """The store could not be asked. Nothing is known to have changed; try again later."""


class MetadataStore(Protocol):
    """One broker's session. Calls that give no Answer raise StoreUnavailable when the store is out of reach."""

    broker_id: int

    async def open(self) -> None: ...

    async def cluster_id(self, proposed: str) -> str:
        """The name of the cluster that this store holds. The first proposal ever made is kept."""
        ...

    async def claim(self) -> Claim: ...

    async def campaign(self, after_epoch: int, gone: int | None = None) -> int | None:
        """Win a new epoch, if `after_epoch` is still the latest and nobody else alive holds it; None otherwise.

        The holder itself wins again, so a candidate who did not hear the answer finds out by asking once more. `gone`
        is a holder that the candidate knows to be dead: the end of its session is not waited for.
        """
        ...

    async def append(self, epoch: int, index: int, append_id: bytes, records: Sequence[bytes]) -> Answer:
        """Add records at the end, all or nothing; ValueError if there are none, or over MAX_APPEND_BYTES of them."""
        ...

    async def read(self, from_index: int) -> list[Batch] | Trimmed:
        """Some of the batches from `from_index` on, in order; an empty list at the end. Batches are never cut."""
        ...

    async def snapshot(self, epoch: int, index: int, chunks: Sequence[bytes]) -> Answer:
        """Publish a stand-in for everything below `index`, where a batch begins or the list ends, and trim the list."""
        ...

    async def latest_snapshot(self) -> Snapshot | None: ...

    async def watch(self) -> None:
        """Return once the list or the claim may have changed since the last return; at once the first time.

        It may be late, and many changes may be told as one, but none is lost. One's own need not be told.
        """
        ...

    async def close(self) -> None:
        """End the session, and with it the claim."""
        ...


def packed_size(records: Iterable[bytes]) -> int:
    return sum(_LENGTH_BYTES + len(record) for record in records)


def pack(records: Iterable[bytes]) -> bytes:
    """Records one after the other, each behind its length in four bytes."""
    return b"".join(part for record in records for part in (len(record).to_bytes(_LENGTH_BYTES, "big"), record))


def unpack(data: bytes) -> tuple[bytes, ...]:
    records = []
    position = 0
    while position < len(data):
        start = position + _LENGTH_BYTES
        end = start + int.from_bytes(data[position:start], "big")
        if end > len(data):
            raise ValueError(f"packed records end in the middle of one: {end} bytes wanted, {len(data)} there")
        records.append(data[start:end])
        position = end
    return tuple(records)


def check_append(records: Sequence[bytes]) -> None:
    if not records:
        raise ValueError("an append needs at least one record")
    if (size := packed_size(records)) > MAX_APPEND_BYTES:
        raise ValueError(f"an append of {size} bytes is over the limit of {MAX_APPEND_BYTES}; split it")
