"""Columns into record batches, without an object per record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.records import engine
from barnabas.records.batch import (
    HEADER_SIZE,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
)
from barnabas.records.builder import seal
from barnabas.records.columns import BinaryColumn, HeadersColumn
from barnabas.records.compression import Compression

if TYPE_CHECKING:
    from collections.abc import Sequence

_NOTHING = memoryview(b"")
_NO_INT32 = _NOTHING.cast("i")
_NO_INT64 = _NOTHING.cast("q")


class Cut(NamedTuple):
    batch: bytearray
    end: int
    """The place of the first row that is not in it."""


class Rows:
    """A table of keys, values, timestamps and headers; a column that is None is null in every row."""

    __slots__ = ("_source", "count")

    def __init__(
        self,
        key: BinaryColumn | None,
        value: BinaryColumn | None,
        timestamps_ms: memoryview,
        headers: HeadersColumn | None = None,
    ) -> None:
        self.count = len(timestamps_ms)
        header_count = 0 if headers is None else len(headers.key)
        self._source = engine.row_codec.RowSource(
            _source(key, self.count),
            _source(value, self.count),
            timestamps_ms,
            _NO_INT32 if headers is None else headers.ends,
            _source(None if headers is None else headers.key, header_count),
            _source(None if headers is None else headers.value, header_count),
            header_count,
        )

    def largest(self) -> tuple[int, int]:
        """The row that takes the most bytes in a batch, and the most that the whole batch of it alone could take."""
        row, size = self._source.largest()
        return row, HEADER_SIZE + size

    def by_partition(self, partition_count: int, chosen: memoryview | None = None) -> tuple[memoryview, Sequence[int]]:
        """The rows in the order of their partitions, and where in that order each partition ends.

        A row goes where `chosen` (32 bits each) says if that is not negative, else where its key says, as Java's client
        would put it. Rows without either come last.
        """
        order, ends = self._source.partition(_NO_INT32 if chosen is None else chosen, partition_count)
        return memoryview(order).cast("i"), ends

    def cut(
        self,
        order: memoryview | None,
        first: int,
        last: int,
        limit_bytes: int,
        compression: Compression = Compression.NONE,
        *,
        transactional: bool = False,
    ) -> Cut:
        """A batch of the rows from place `first` up to `last` of the order, as many as fit; uncompressed, that is.

        Without an order it is that of the table. A first row that does not fit is an error. The batch is whole, but of
        nobody: the producer's id, epoch and sequence are yet to be written into it.
        """
        encoded = self._source.encode(_NO_INT32 if order is None else order, first, last, limit_bytes, HEADER_SIZE)
        room_and_records, end, base_timestamp_ms, max_timestamp_ms = encoded
        if end == first:
            raise ValueError(f"{limit_bytes} bytes are too few for the record at place {first}")
        header = BatchHeader(
            base_offset=0,
            batch_length=0,
            partition_leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=transactional * TRANSACTIONAL,
            last_offset_delta=end - first - 1,
            base_timestamp=base_timestamp_ms,
            max_timestamp=max_timestamp_ms,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            record_count=end - first,
        )
        return Cut(seal(room_and_records, header, compression), end)


def _source(column: BinaryColumn | None, rows: int) -> Any:
    if column is None:
        return engine.row_codec.BinarySource(_NOTHING, _NO_INT32, _NO_INT64, _NOTHING, 0, rows)
    narrow = column.ends.format == "i"
    return engine.row_codec.BinarySource(
        column.data,
        column.ends if narrow else _NO_INT32,
        _NO_INT64 if narrow else column.ends,
        _NOTHING if column.validity is None else column.validity,
        column.first_bit,
        rows,
    )
