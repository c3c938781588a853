"""What a partition remembers of its idempotent and transactional producers.

For each producer id: its epoch, its last five batches (a producer has at most five in flight, so a retry is always
among them), and the first offset of its open transaction. From this follow: a batch that was seen is a duplicate and
answered with its first offset, one that leaves a gap is refused, one of an older epoch is fenced; and nothing at or
above the first offset of an open transaction is stable.

State is the fold of the log's batches, so it is never lost: it is rebuilt from the newest readable snapshot
(`<offset>.snapshot`, the state before that offset) and the batches after it. The snapshot is Kafka's, version 1:

    version i16 | crc u32 | count i32 | entries...
    producer_id i64 | epoch i16 | last_sequence i32 | last_offset i64 | offset_delta i32 | timestamp i64
    coordinator_epoch i32 | current_txn_first_offset i64

Kafka writes one entry per producer, its last batch, and so refuses a retry of an earlier one after a restart. Here
every batch that is kept has an entry, the oldest first: of entries with the same id Kafka lets the last one count.

Owned by the event loop. `check_*` only judges; `add_*` only records, so a refused batch leaves nothing behind.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP
from barnabas.records.crc import crc32c

SNAPSHOT_SUFFIX = ".snapshot"
NO_OFFSET = -1
NO_COORDINATOR_EPOCH = -1

_BATCHES_KEPT = 5
_LAST_SEQUENCE = 2**31 - 1
_LAST_EPOCH = 2**15 - 1  # never a producer's own: what is open with it, if anything, must end with it too
_VERSION = 1
_SNAPSHOT_HEAD = struct.Struct(">hIi")
_CRC_END = 6
_ENTRY = struct.Struct(">qhiqiqiq")


class CorruptSnapshot(ValueError):
    """A snapshot that cannot be read; an older one, or the log, tells the same."""


class ProducerBatch(NamedTuple):
    """One batch of a producer, as much as a duplicate is recognised by and answered with."""

    base_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class CompletedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class Verification:
    """That a producer's transaction is asked about, at its coordinator, before its first batch in a partition.

    The answer is for the transaction that was open then. In the first protocol the next one has the same epoch, so this
    is all that tells them apart: the end of a transaction in the partition makes its verifications void (KIP-890).
    """

    __slots__ = ("begun_ms", "epoch", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int, now_ms: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        """Of all batches that were held up; a producer of which nothing is known here must begin with it."""
        self.begun_ms = now_ms


class ProducerEntry:
    __slots__ = ("batches", "coordinator_epoch", "current_txn_first_offset", "epoch", "last_timestamp", "producer_id")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = NO_PRODUCER_EPOCH
        self.batches: list[ProducerBatch] = []  # the oldest first
        self.last_timestamp = NO_TIMESTAMP
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.current_txn_first_offset = NO_OFFSET

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def begin_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches = []


def next_sequence(sequence: int, count: int = 1) -> int:
    """`count` further on; sequences go from 2**31 - 1 to 0."""
    return (sequence + count) & _LAST_SEQUENCE


class ProducerStates:
    __slots__ = ("_ongoing", "_unreplicated", "_verifications", "entries", "first_unstable_offset")

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.first_unstable_offset = NO_OFFSET
        """The first offset of the earliest transaction that is open, or whose end the watermark has not passed."""
        self._ongoing: dict[int, int] = {}  # first offset -> producer id, in the order of offsets
        self._unreplicated: dict[int, int] = {}  # first offset -> offset of the marker
        self._verifications: dict[int, Verification] = {}  # by producer id

    # judging

    def check_batch(
        self, producer_id: int, epoch: int, base_sequence: int, last_sequence: int, is_transactional: bool
    ) -> ProducerBatch | None:
        """None if the batch is the next one; the batch as it was first appended if it is a duplicate; else an error."""
        entry = self.entries.get(producer_id)
        if entry is None:
            return None  # nothing is left of this producer, so any sequence is as good as the first
        if epoch == entry.epoch:
            for batch in entry.batches:
                if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
                    return batch
            expected = next_sequence(entry.last_sequence) if entry.batches else 0
        elif epoch > entry.epoch:
            expected = base_sequence if entry.epoch == NO_PRODUCER_EPOCH else 0
        else:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} has epoch {entry.epoch}; a batch of epoch {epoch} is fenced",
            )
        if base_sequence != expected:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id}, epoch {epoch}: sequence {base_sequence} came where {expected} was expected",
            )
        if entry.current_txn_first_offset != NO_OFFSET and not is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} is in a transaction; a batch outside of it must wait for its end",
            )
        return None

    def is_in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer, in this epoch, has a transaction open here."""
        entry = self.entries.get(producer_id)
        return entry is not None and entry.epoch == epoch and entry.current_txn_first_offset != NO_OFFSET

    def begin_verification(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> Verification:
        """A batch waits for its transaction to be asked about; before it is appended, `check_verified`."""
        verification = self._verifications.get(producer_id)
        if verification is None:
            verification = self._verifications[producer_id] = Verification(epoch, sequence, now_ms)
        elif epoch != verification.epoch:
            verification.epoch, verification.lowest_sequence = epoch, sequence
        else:
            verification.lowest_sequence = min(verification.lowest_sequence, sequence)
        return verification

    def check_verified(self, producer_id: int, sequence: int, verification: Verification) -> None:
        """Refuse a batch whose transaction has ended here since, and one that overtook those it must follow."""
        if self._verifications.get(producer_id) is not verification:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"the transaction of producer {producer_id} ended before this batch of it could be appended",
            )
        if producer_id not in self.entries and sequence > verification.lowest_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} begins with sequence {verification.lowest_sequence}; {sequence} came first",
            )

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int = 0) -> None:
        """Refuse the end of a transaction that comes from an older producer or an older coordinator.

        In version 2 the end has a higher epoch than the transaction. A marker with the epoch of one that is open was
        sent for the one before, and came late or twice (KIP-1228).
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            return
        is_late = transaction_version >= 2 and entry.current_txn_first_offset != NO_OFFSET and epoch < _LAST_EPOCH
        if epoch < entry.epoch or (is_late and epoch == entry.epoch):
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} has epoch {entry.epoch}; a marker of epoch {epoch} is fenced",
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"producer {producer_id} obeys coordinator epoch {entry.coordinator_epoch}; {coordinator_epoch} is old",
            )

    # recording

    def add_batch(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
        is_transactional: bool,
    ) -> None:
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id)
        if epoch != entry.epoch:
            entry.begin_epoch(epoch)
        delta = last_offset - first_offset
        batches = entry.batches
        if len(batches) == _BATCHES_KEPT:
            del batches[0]
        batches.append(
            ProducerBatch(base_sequence, (base_sequence + delta) & _LAST_SEQUENCE, last_offset, delta, timestamp)
        )
        entry.last_timestamp = timestamp
        if is_transactional and entry.current_txn_first_offset == NO_OFFSET:
            entry.current_txn_first_offset = first_offset
            self._ongoing[first_offset] = producer_id
            self._update_first_unstable_offset()

    def add_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, offset: int, timestamp: int, is_abort: bool
    ) -> CompletedTxn | None:
        """Record the end of a transaction; None if it held no records here."""
        self._verifications.pop(producer_id, None)
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id)
        entry.begin_epoch(epoch)
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        first_offset, entry.current_txn_first_offset = entry.current_txn_first_offset, NO_OFFSET
        if first_offset == NO_OFFSET:
            return None
        self._ongoing.pop(first_offset, None)
        self._unreplicated[first_offset] = offset
        self._update_first_unstable_offset()
        return CompletedTxn(producer_id, first_offset, offset, is_abort)

    def last_stable_offset_after(self, completed: CompletedTxn) -> int:
        """Where the log is stable up to, once this transaction's end is committed."""
        return min(self._ongoing, default=completed.last_offset + 1)

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Transactions that ended below the watermark no longer hold the last stable offset back."""
        if self._unreplicated:
            self._unreplicated = {first: last for first, last in self._unreplicated.items() if last >= high_watermark}
            self._update_first_unstable_offset()

    def _update_first_unstable_offset(self) -> None:
        self.first_unstable_offset = min((*self._ongoing, *self._unreplicated), default=NO_OFFSET)

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that were silent for long and have no transaction open."""
        expired = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.current_txn_first_offset == NO_OFFSET and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.entries[producer_id]
        self._verifications = {
            producer_id: verification
            for producer_id, verification in self._verifications.items()
            if now_ms - verification.begun_ms < expiration_ms
        }

    def clear(self) -> None:
        self.entries.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self._verifications.clear()
        self.first_unstable_offset = NO_OFFSET

    # snapshots

    def encode(self) -> bytes:
        data = bytearray(_SNAPSHOT_HEAD.size)
        for entry in self.entries.values():
            producer_id, epoch, coordinator_epoch = entry.producer_id, entry.epoch, entry.coordinator_epoch
            for batch in entry.batches[:-1]:
                _, sequence, offset, offset_delta, timestamp = batch
                data += _ENTRY.pack(
                    producer_id, epoch, sequence, offset, offset_delta, timestamp, coordinator_epoch, NO_OFFSET
                )
            data += _ENTRY.pack(
                producer_id,
                epoch,
                entry.last_sequence,
                entry.last_offset,
                entry.batches[-1].offset_delta if entry.batches else 0,
                entry.last_timestamp,
                coordinator_epoch,
                entry.current_txn_first_offset,
            )
        count = (len(data) - _SNAPSHOT_HEAD.size) // _ENTRY.size
        _SNAPSHOT_HEAD.pack_into(data, 0, _VERSION, 0, count)
        _SNAPSHOT_HEAD.pack_into(data, 0, _VERSION, crc32c(memoryview(data)[_CRC_END:]), count)
        return bytes(data)

    def restore(self, data: bytes) -> None:
        """Take the state of a snapshot in place of this one."""
        entries = _decode(data)
        self.clear()
        for entry in entries:
            self.entries[entry.producer_id] = entry
            if entry.current_txn_first_offset != NO_OFFSET:
                self._ongoing[entry.current_txn_first_offset] = entry.producer_id
        self._ongoing = dict(sorted(self._ongoing.items()))
        self._update_first_unstable_offset()


def _decode(data: bytes) -> list[ProducerEntry]:
    if len(data) < _SNAPSHOT_HEAD.size:
        raise CorruptSnapshot(f"{len(data)} bytes are too few for a producer snapshot")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != _VERSION:
        raise CorruptSnapshot(f"a producer snapshot has version {version}; only {_VERSION} is known")
    if crc != crc32c(memoryview(data)[_CRC_END:]) or len(data) != _SNAPSHOT_HEAD.size + count * _ENTRY.size:
        raise CorruptSnapshot("a producer snapshot has a wrong CRC or length")
    entries: dict[int, ProducerEntry] = {}
    for fields in _ENTRY.iter_unpack(memoryview(data)[_SNAPSHOT_HEAD.size :]):
        producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, first = fields
        entry = entries.get(producer_id)
        if entry is None:
            entry = entries[producer_id] = ProducerEntry(producer_id)
        entry.begin_epoch(epoch)
        entry.last_timestamp = timestamp
        entry.coordinator_epoch = coordinator_epoch
        entry.current_txn_first_offset = first
        if last_sequence != NO_SEQUENCE:
            base_sequence = next_sequence(last_sequence, -offset_delta)
            entry.batches.append(ProducerBatch(base_sequence, last_sequence, last_offset, offset_delta, timestamp))
    return list(entries.values())
