"""What a consumer hands out: single records, and batches of one partition that are decoded as their reader asks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.client.consume.consumer_errors import CorruptRecords
from barnabas.records.batch import CorruptBatch
from barnabas.records.record import Header

if TYPE_CHECKING:
    import pyarrow

    from barnabas.client.consume.chunks import Chunk
    from barnabas.client.consume.deserializing import Deserializing
    from barnabas.client.metadata import TopicPartition


class ConsumerRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970; -1 where there is none."""
    key: Any
    """Bytes, or what the deserialiser makes of them; None is no key. The same holds for the value."""
    value: Any
    headers: tuple[Header, ...] = ()


class ConsumerBatch:
    """Records of one partition, in order. Columns are made without an object per record."""

    __slots__ = ("_chunk", "_deserializing", "high_watermark", "partition")

    def __init__(
        self, partition: TopicPartition, chunk: Chunk, deserializing: Deserializing | None, high_watermark: int
    ) -> None:
        self.partition = partition
        self.high_watermark = high_watermark
        """Where the partition ended when this was fetched."""
        self._chunk = chunk
        self._deserializing = deserializing

    @property
    def from_offset(self) -> int:
        return self._chunk.from_offset

    @property
    def next_offset(self) -> int:
        """Where to go on after this batch: what to commit once it is done."""
        return self._chunk.next_offset

    @property
    def size_bytes(self) -> int:
        """As it came over the wire, compressed perhaps."""
        return self._chunk.size

    def raw_records(self) -> list[ConsumerRecord]:
        """The records with keys and values as they are in the log."""
        with self._placing_damage():
            return list(chain.from_iterable(self._chunk.records(self.partition)))

    def records(self) -> list[ConsumerRecord]:
        """The records; DeserializationError for one that cannot be deserialised, unless it is to be passed over."""
        records = self.raw_records()
        if self._deserializing is None:
            return records
        opened = (self._deserializing.open(record) for record in records)
        return [record for record in opened if record is not None]

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return iter(self.records())

    def to_arrow(self, *columns: str) -> pyarrow.RecordBatch:
        """Columns key, value, offset, timestamp, headers, or those named; keys and values are bytes."""
        from barnabas.records.columns import Column

        wanted = Column.ALL
        if columns:
            unknown = [name for name in columns if name.upper() not in Column.__members__ or name == "all"]
            if unknown:
                raise ValueError(f"no column {unknown[0]!r}; there are key, value, offset, timestamp, headers")
            wanted = Column(0)
            for name in columns:
                wanted |= Column[name.upper()]
        with self._placing_damage():
            return self._chunk.columns(wanted).to_arrow()

    def to_pandas(self, *columns: str) -> Any:
        """A pandas DataFrame of the same columns."""
        return self.to_arrow(*columns).to_pandas()

    @contextmanager
    def _placing_damage(self) -> Iterator[None]:
        try:
            yield
        except CorruptBatch as error:
            raise CorruptRecords(self.partition, self.from_offset, error) from error

    def __repr__(self) -> str:
        return f"ConsumerBatch({self.partition}, offsets {self.from_offset} to {self.next_offset - 1})"
