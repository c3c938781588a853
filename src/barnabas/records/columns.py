"""Records as columns: from batches into Arrow's buffers, without an object per record.

The buffers follow Arrow's layout (bits of validity, ends of rows, data), so `to_arrow` and `from_arrow` wrap them
without a copy, and any other reader of that layout can use them without pyarrow. Timestamps stay the milliseconds that
the records carry. The way back, into batches, is `column_batches`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Flag, auto
from typing import TYPE_CHECKING, Any, Literal

from barnabas.core.dataclass import dataclass
from barnabas.records import engine
from barnabas.records.batch import BatchHeader, headers, verify
from barnabas.records.codec import LARGEST
from barnabas.records.compression import DEFAULT_LIMIT_BYTES
from barnabas.records.reader import section_of

if TYPE_CHECKING:
    import pyarrow

WIDEST_INT32 = 2**31 - 1


class Column(Flag):
    KEY = auto()
    VALUE = auto()
    OFFSET = auto()
    TIMESTAMP = auto()
    HEADERS = auto()
    ALL = KEY | VALUE | OFFSET | TIMESTAMP | HEADERS


@dataclass(frozen=True, slots=True)
class BinaryColumn:
    """Row i is `data[ends[i]:ends[i + 1]]`; it is null where bit `first_bit + i` of `validity` is 0.

    No validity: nothing is null.
    """

    data: memoryview
    ends: memoryview  # format "i", or "q" where the data exceed 2 GiB
    validity: memoryview | None
    null_count: int
    first_bit: int = 0  # a slice shares the bits of the whole

    def __len__(self) -> int:
        return len(self.ends) - 1

    def to_arrow(self, text: bool = False) -> pyarrow.Array:
        import pyarrow

        ordinary, large = (pyarrow.string, pyarrow.large_string) if text else (pyarrow.binary, pyarrow.large_binary)
        kind = large() if self.ends.format == "q" else ordinary()
        buffers = [
            None if self.validity is None else pyarrow.py_buffer(self.validity),
            pyarrow.py_buffer(self.ends),
            pyarrow.py_buffer(self.data),
        ]
        return pyarrow.Array.from_buffers(kind, len(self), buffers, self.null_count)

    @classmethod
    def from_arrow(cls, array: pyarrow.Array) -> BinaryColumn:
        """The column of an array of bytes or text, or of a slice of one, on the same memory where Arrow has it so."""
        import pyarrow

        kinds = pyarrow.types
        is_wide = kinds.is_large_binary(array.type) or kinds.is_large_string(array.type)
        if not is_wide and not kinds.is_binary(array.type) and not kinds.is_string(array.type):
            array = array.cast(pyarrow.binary())  # of fixed size, or a view
        validity, ends, data = array.buffers()
        return cls(
            data=_arrow_bytes(data),
            ends=_arrow_ends(ends, "q" if is_wide else "i", array),
            validity=_arrow_bytes(validity) if array.null_count else None,
            null_count=array.null_count,
            first_bit=array.offset,
        )


@dataclass(frozen=True, slots=True)
class HeadersColumn:
    """Row i has the headers `ends[i]` up to `ends[i + 1]` of the two columns."""

    ends: memoryview  # format "i"
    key: BinaryColumn
    value: BinaryColumn

    def to_arrow(self) -> pyarrow.Array:
        import pyarrow

        key, value = self.key.to_arrow(text=True), self.value.to_arrow()
        fields = [pyarrow.field("key", key.type, nullable=False), pyarrow.field("value", value.type)]
        pairs = pyarrow.StructArray.from_arrays([key, value], fields=fields)
        kind = pyarrow.list_(pyarrow.field("element", pairs.type, nullable=False))
        ends = pyarrow.py_buffer(self.ends)
        return pyarrow.Array.from_buffers(kind, len(self.ends) - 1, [None, ends], 0, children=[pairs])

    @classmethod
    def from_arrow(cls, array: pyarrow.Array) -> HeadersColumn:
        """The column of an array of lists of pairs (key, value), or of maps; a null list is an empty one."""
        if array.null_count:
            array = array.fill_null([])
        key, value = array.values.flatten()
        ends = _arrow_ends(array.buffers()[1], "i", array)
        return cls(ends, BinaryColumn.from_arrow(key), BinaryColumn.from_arrow(value))


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that were asked for; the others are None."""

    rows: int
    key: BinaryColumn | None
    value: BinaryColumn | None
    offset: memoryview | None  # format "q"
    timestamp_ms: memoryview | None  # format "q"
    headers: HeadersColumn | None

    def to_arrow(self) -> pyarrow.RecordBatch:
        """A pyarrow RecordBatch on the same memory; the timestamp column is `timestamp[ms, UTC]`."""
        try:
            import pyarrow
        except ModuleNotFoundError:
            raise ModuleNotFoundError("Arrow columns need pyarrow: pip install 'barnabas[arrow]'") from None

        def integers(kind: Any, view: memoryview) -> Any:
            return pyarrow.Array.from_buffers(kind, self.rows, [None, pyarrow.py_buffer(view)], 0)

        arrays: dict[str, Any] = {}
        for name, column in (("key", self.key), ("value", self.value)):
            if column is not None:
                arrays[name] = column.to_arrow()
        if self.offset is not None:
            arrays["offset"] = integers(pyarrow.int64(), self.offset)
        if self.timestamp_ms is not None:
            arrays["timestamp"] = integers(pyarrow.timestamp("ms", tz="UTC"), self.timestamp_ms)
        if self.headers is not None:
            arrays["headers"] = self.headers.to_arrow()
        return pyarrow.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


class ColumnReader:
    """Gathers the wanted columns of fetched batches until it is told to finish.

    A batch that is corrupt raises CorruptBatch and adds no row; what was gathered before it can still be finished.
    """

    __slots__ = ("_limit_bytes", "_sink", "_wanted", "next_offset", "rows", "size_bytes")

    def __init__(self, wanted: Column = Column.ALL, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self._wanted = wanted
        self._limit_bytes = limit_bytes
        self._sink = _new_sink(wanted)
        self.rows = 0
        self.size_bytes = 0  # of the records in the batches that were added, decompressed
        self.next_offset = 0  # where the next fetch should begin: behind the last batch that was passed

    def add(
        self,
        fetched: memoryview,
        *,
        from_offset: int = 0,
        until_offset: int = LARGEST,
        keep: Callable[[BatchHeader], bool] | None = None,
    ) -> int:
        """Add the records with offsets in the range, and tell how many rows there are by now.

        Control batches are passed over, and so is every batch that `keep` declines (an aborted transaction's, say).
        A batch that the fetch has cut at the end is left for the next one.
        """
        self.expect(len(fetched))
        for position, header in headers(fetched):
            if header.base_offset >= until_offset:
                break
            if header.last_offset >= from_offset and not header.is_control and (keep is None or keep(header)):
                verify(fetched, position, header)
                self.add_checked(fetched[position : position + header.size], header, from_offset, until_offset)
            self.next_offset = min(header.next_offset, until_offset)
        return self.rows

    def expect(self, size: int) -> None:
        """Make room for so many bytes of batches at once."""
        self._sink.expect(size)

    def add_checked(
        self, batch: memoryview, header: BatchHeader, from_offset: int = 0, until_offset: int = LARGEST
    ) -> None:
        """Add the records of one batch that was verified before."""
        section = section_of(batch, header, self._limit_bytes)
        self.rows = self._sink.decode(section, header, from_offset, until_offset)
        self.size_bytes += len(section)

    def finish(self) -> Columns:
        """What was gathered; the reader begins anew."""
        sink, wanted, rows = self._sink, self._wanted, self.rows
        offset, timestamp, header_ends = sink.integers()
        key, value, header_key, header_value = sink.binaries()
        self._sink = _new_sink(wanted)
        self.rows = self.size_bytes = 0
        return Columns(
            rows=rows,
            key=_binary(key, rows) if Column.KEY in wanted else None,
            value=_binary(value, rows) if Column.VALUE in wanted else None,
            offset=_wide(offset, rows) if Column.OFFSET in wanted else None,
            timestamp_ms=_wide(timestamp, rows) if Column.TIMESTAMP in wanted else None,
            headers=_headers(header_ends, rows, header_key, header_value) if Column.HEADERS in wanted else None,
        )


def decode_columns(
    fetched: memoryview,
    wanted: Column = Column.ALL,
    *,
    from_offset: int = 0,
    until_offset: int = LARGEST,
    keep: Callable[[BatchHeader], bool] | None = None,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> Columns:
    """The columns of one fetch's batches; see `ColumnReader`."""
    reader = ColumnReader(wanted, limit_bytes=limit_bytes)
    reader.add(fetched, from_offset=from_offset, until_offset=until_offset, keep=keep)
    return reader.finish()


def _arrow_bytes(buffer: pyarrow.Buffer | None) -> memoryview:
    """Arrow lets an empty array go without."""
    return memoryview(b"" if buffer is None else buffer).cast("B")


def _arrow_ends(buffer: pyarrow.Buffer | None, number: Literal["i", "q"], array: pyarrow.Array) -> memoryview:
    """Where the rows of an array, which may be a slice of what its buffers hold, begin and end."""
    ends = _arrow_bytes(buffer)
    return (ends if ends.nbytes else memoryview(bytes(8))).cast(number)[array.offset : array.offset + len(array) + 1]


def _new_sink(wanted: Column) -> Any:
    return engine.column_codec.ColumnSink(
        key=Column.KEY in wanted,
        value=Column.VALUE in wanted,
        offset=Column.OFFSET in wanted,
        timestamp=Column.TIMESTAMP in wanted,
        headers=Column.HEADERS in wanted,
    )


def _wide(buffer: bytearray, count: int) -> memoryview:
    return memoryview(buffer)[: 8 * count].cast("q")


def _ends(buffer: bytearray, count: int, total: int) -> memoryview:
    wide = _wide(buffer, count)
    return wide if total > WIDEST_INT32 else memoryview(engine.column_codec.narrow(wide, count)).cast("i")


def _binary(sink: Any, rows: int) -> BinaryColumn:
    data, ends, validity = sink.buffers()
    size = _wide(ends, rows + 1)[rows]
    bits = memoryview(validity)[: (rows + 7) // 8]
    nulls = rows - (int.from_bytes(bits, "little") & (1 << rows) - 1).bit_count()
    return BinaryColumn(
        data=memoryview(data)[:size],
        ends=_ends(ends, rows + 1, size),
        validity=bits if nulls else None,
        null_count=nulls,
    )


def _headers(ends: bytearray, rows: int, key: Any, value: Any) -> HeadersColumn:
    total = _wide(ends, rows + 1)[rows]
    keys = _binary(key, total)
    if not bytes(keys.data).isascii():
        keys = _valid_text(keys)
    return HeadersColumn(_ends(ends, rows + 1, total), keys, _binary(value, total))


def _valid_text(column: BinaryColumn) -> BinaryColumn:
    """Header keys are text in Arrow, which takes only good UTF-8: mend them as Java does when it reads them."""
    sink = engine.column_codec.BinarySink()
    for row, (start, end) in enumerate(zip(column.ends, column.ends[1:])):
        sink.append(row, bytes(column.data[start:end]).decode("utf-8", "replace").encode())
    return _binary(sink, len(column))
