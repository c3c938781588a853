"""What a consumer raises about a single partition or record, with all that its caller needs to decide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.client.consume.consumed import ConsumerRecord
    from barnabas.client.metadata import TopicPartition


class DeserializationError(ValueError):
    """A record whose key or value the deserialiser refuses. Reading on goes on with the next record."""

    def __init__(self, field: str, record: ConsumerRecord, cause: Exception) -> None:
        super().__init__(
            f"cannot deserialise the {field} of {record.topic}-{record.partition} at offset {record.offset}: {cause!r}"
            "; read on to pass over it"
        )
        self.field = field
        self.topic = record.topic
        self.partition = record.partition
        self.offset = record.offset
        self.record = record
        """As it is in the log: key and value are bytes."""


class NoOffset(KafkaError):
    """A partition without a place to begin at: nothing is committed, or the log does not hold the offset."""

    def __init__(self, partition: TopicPartition, offset: int | None) -> None:
        cause = "no offset is committed for it" if offset is None else f"it does not hold offset {offset}"
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"cannot read {partition}: {cause}; seek to another place, or set auto_offset_reset to earliest or latest",
        )
        self.partition = partition
        self.offset = offset


class LogTruncated(KafkaError):
    """Records that the consumer has read are no longer in the log: a leader was elected that never had them."""

    def __init__(self, partition: TopicPartition, position: int, end_offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"the log of {partition} was cut at offset {end_offset}, and {position - end_offset} offsets that were "
            f"read or committed are gone; seek to {end_offset} to read what took their place",
        )
        self.partition = partition
        self.position = position
        self.end_offset = end_offset


class CorruptRecords(KafkaError):
    """Bytes of the log that are no records. The position stays before them."""

    def __init__(self, partition: TopicPartition, position: int, cause: Exception) -> None:
        super().__init__(
            ErrorCode.CORRUPT_MESSAGE, f"cannot read {partition} at offset {position}: {cause}; seek past it to go on"
        )
        self.partition = partition
        self.position = position
