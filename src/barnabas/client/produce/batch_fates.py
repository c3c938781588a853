"""What becomes of a batch: appended, sent again, in parts, or given up; and the counts of it."""

from __future__ import annotations

from barnabas.client.client import Client
from barnabas.client.errors import CannotReach, DeliveryUnknown, RecordTooLarge, records
from barnabas.client.produce.buffer_memory import BufferMemory
from barnabas.client.produce.delivery import Appended, Failures
from barnabas.client.produce.identity import Identity
from barnabas.client.produce.partition_queue import PartitionQueue
from barnabas.client.produce.producer_batch import ProducerBatch
from barnabas.client.produce.producer_topics import ParkedRecord
from barnabas.core import logs
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.records.compression import Compression

_log = logs.get_logger(__name__)
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_GAPS = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)
"""What a leader says whose count of our sequence numbers is not ours."""
_NEVER_APPENDED = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.LEADER_NOT_AVAILABLE)
"""Retriable errors that leaders return before anything is appended; they may return the others after it, too."""


class Fates:
    def __init__(
        self,
        client: Client,
        compression: Compression,
        identity: Identity,
        memory: BufferMemory,
        failures: Failures,
    ) -> None:
        self.records_sent = 0
        self.bytes_sent = 0
        self.records_failed = 0
        self.batches_repeated = 0
        self.failures = failures
        self._client = client
        self._compression = compression
        self._identity = identity
        self._memory = memory

    def appended(self, queue: PartitionQueue, batch: ProducerBatch, appended: Appended) -> None:
        queue.settle(batch)
        queue.is_counted = True
        queue.problem = None
        if batch.is_done:
            return  # too late: it was given up
        self.records_sent += batch.count
        self.bytes_sent += batch.size_bytes
        batch.drop()
        batch.complete(appended)
        self._memory.release(batch.reserved_bytes)

    def refused(self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError) -> None:
        """Decide whether a batch that was not appended is sent again, in parts, or given up."""
        code = error.code
        now = self._client.clock.monotonic()
        queue.problem = error
        if batch.is_done:
            queue.settle(batch)
        elif code in _TOO_LARGE and batch.count > 1:
            queue.split(batch, self._compression)
            batch.drop()
            self._memory.release(batch.reserved_bytes)
        elif code in _GAPS and self._may_be_in_order_later(queue, batch):
            queue.repeat(batch, now if batch.attempts == 1 else now + self._client.backoff_seconds(batch.attempts))
        elif error.retriable:
            self.batches_repeated += 1
            batch.may_be_appended |= _may_be_appended(error)
            self._client.metadata.forget([queue.partition.topic])
            queue.repeat(batch, now + self._client.backoff_seconds(batch.attempts - 1))
        else:
            queue.settle(batch)
            self.give_up(batch, _final(queue, batch, error))

    def _may_be_in_order_later(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Whether numbers that the leader refuses are right once earlier batches are in, or under the next epoch.

        That epoch is only for a batch that is not in the log, and so has nothing behind it there either.
        """
        if not self._identity.is_idempotent:
            return False
        if batch.leads:
            queue.has_gap = self._identity.transactional_id is None and not batch.may_be_appended
            return queue.has_gap
        return True

    def give_up(self, batch: ProducerBatch, error: KafkaError) -> None:
        if batch.is_done:
            return  # it is in flight, and was given up before
        count = batch.record_count
        self.records_failed += count
        _log.warning("records not delivered", partition=batch.partition, count=count, problem=str(error))
        batch.fail(error, count)
        batch.drop()
        self._memory.release(batch.reserved_bytes)
        self.failures.add(batch)
        self._identity.lost(error)

    def give_up_parked(self, parked: ParkedRecord, error: KafkaError) -> None:
        self.records_failed += 1
        topic = parked.pending.partition.topic
        _log.warning("record not delivered", topic=topic, problem=str(error))
        parked.pending.fail(error, 1)
        self._memory.release(parked.reserved_bytes)
        self.failures.add(parked.pending)
        self._identity.lost(error)


def _may_be_appended(error: KafkaError) -> bool:
    """Whether an attempt that failed so may have been carried out all the same."""
    if isinstance(error, CannotReach):
        return error.may_be_carried_out
    return error.code not in _NEVER_APPENDED


def _final(queue: PartitionQueue, batch: ProducerBatch, error: KafkaError) -> KafkaError:
    """What the records of a batch fail with."""
    if error.code in _TOO_LARGE:
        return RecordTooLarge(_too_large(queue, batch))
    if error.code in _GAPS and batch.may_be_appended:
        return DeliveryUnknown(records(batch.record_count, f" for {queue.partition}"), error)
    return error


def _too_large(queue: PartitionQueue, batch: ProducerBatch) -> str:
    return (
        f"a record of {batch.size_bytes} bytes is more than topic {queue.partition.topic!r} takes; "
        "raise its max.message.bytes, or send less at once"
    )
