"""One batch of a producer: it takes records, becomes the bytes that are sent, and tells its handles how it ended."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.client.metadata import TopicPartition
from barnabas.client.produce.delivery import Delivery, Pending
from barnabas.client.produce.identity import ProducerIdentity
from barnabas.records import engine
from barnabas.records.batch import HEADER, MAGIC, NO_SEQUENCE, TRANSACTIONAL, BatchHeader, write_crc
from barnabas.records.builder import seal
from barnabas.records.compression import Compression


class ProducerBatch(Pending):
    """Records of one partition that will be appended together or not at all."""

    __slots__ = (
        "append",
        "attempts",
        "base_sequence",
        "count",
        "created",
        "data",
        "is_open",
        "leads",
        "may_be_appended",
        "order",
        "records",
        "reserved_bytes",
    )

    def __init__(self, partition: TopicPartition, limit_bytes: int, created: float) -> None:
        super().__init__(partition)
        self.records = engine.append_codec.RecordBuffer(limit_bytes)
        self.append: Callable[..., Delivery | None] = self.records.append
        """Takes the batch itself, key, value, headers and timestamp; None if the record does not fit."""
        self.created = created
        self.reserved_bytes = 0
        """What it counts for in the producer's memory."""
        self.is_open = True
        self.order: tuple[int, ...] = ()
        """Its place among all batches of the partition; parts of a batch count on within its place."""
        self.count = 0
        self.data: bytearray | None = None
        self.attempts = 0
        self.base_sequence = NO_SEQUENCE
        self.leads = False
        """Whether nothing before it was unsettled when it left."""
        self.may_be_appended = False
        """Whether an attempt ended without the leader's word that it was not appended."""

    @classmethod
    def of_bytes(cls, partition: TopicPartition, data: bytearray, count: int, created: float) -> ProducerBatch:
        """A batch that was made elsewhere, whole but for its identity and sequence."""
        batch = cls(partition, 0, created)
        batch.is_open = False
        batch.data, batch.count, batch.reserved_bytes = data, count, len(data)
        return batch

    def seal(
        self, compression: Compression, identity: ProducerIdentity, base_sequence: int, transactional: bool
    ) -> None:
        """Make it the bytes that are sent."""
        self.is_open = False
        self.base_sequence = base_sequence
        data, count, base_timestamp, max_timestamp = self.records.take()
        attributes = transactional * TRANSACTIONAL
        times = base_timestamp, max_timestamp
        header = BatchHeader(0, 0, -1, MAGIC, 0, attributes, count - 1, *times, *identity, base_sequence, count)
        self.data, self.count = seal(data, header, compression), count

    def stamp(self, identity: ProducerIdentity, base_sequence: int) -> None:
        """Change under which identity and sequence it is sent."""
        assert self.data is not None
        self.base_sequence = base_sequence
        header = BatchHeader._make(HEADER.unpack_from(self.data))
        producer_id, producer_epoch = identity
        header = header._replace(producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence)
        HEADER.pack_into(self.data, 0, *header)
        with memoryview(self.data) as whole:
            write_crc(whole)

    @property
    def record_count(self) -> int:
        return self.count or len(self.records)

    @property
    def size_bytes(self) -> int:
        return self.records.size() if self.data is None else len(self.data)

    @property
    def filled_bytes(self) -> int:
        """What its records take uncompressed, also after it has let go of them."""
        return self.records.size()  # type: ignore[no-any-return]

    def drop(self) -> None:
        """Let go of the bytes: handles may outlive them by far."""
        self.count = self.record_count
        self.data = None
        self.records.take()
