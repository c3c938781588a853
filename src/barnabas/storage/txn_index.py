"""The transactions that were aborted in one segment (`.txnindex`).

    version i16 | producer_id i64 | first_offset i64 | last_offset i64 | last_stable_offset i64      34 bytes, version 0

`last_offset` is the offset of the abort marker, in the order of which the entries stand; `last_stable_offset` is what
it was once the marker was written, and tells a search when to stop. Written and rebuilt together with the other
indexes; a segment without aborted transactions has no such file.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from barnabas.storage.offset_index import CorruptIndex

_ENTRY = struct.Struct(">hqqqq")
ENTRY_SIZE = _ENTRY.size
_VERSION = 0


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    __slots__ = ("aborted",)

    def __init__(self) -> None:
        self.aborted: list[AbortedTxn] = []

    @classmethod
    def decode(cls, data: bytes) -> TxnIndex:
        if len(data) % ENTRY_SIZE:
            raise CorruptIndex(f"a transaction index of {len(data)} bytes is not made of entries of {ENTRY_SIZE}")
        index = cls()
        for version, *fields in _ENTRY.iter_unpack(data):
            if version != _VERSION:
                raise CorruptIndex(f"an entry of a transaction index has version {version}; only {_VERSION} is known")
            index.aborted.append(AbortedTxn(*fields))
        return index

    def encode(self) -> bytes:
        return b"".join(_ENTRY.pack(_VERSION, *txn) for txn in self.aborted)

    def truncate_to(self, offset: int) -> None:
        """Forget the transactions whose marker stands at or after `offset`."""
        self.aborted = [txn for txn in self.aborted if txn.last_offset < offset]
