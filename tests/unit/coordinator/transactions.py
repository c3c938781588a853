"""A transaction shard with everything around it that a broker has: a clock, a log of records, markers on their way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import Any

from barnabas.coordinator.outcome import CoordinatorRecord, Now
from barnabas.coordinator.transaction import ProducerIdAndEpoch, TopicPartition, Transaction
from barnabas.coordinator.transaction_listing import TransactionFilter
from barnabas.coordinator.transaction_log import transaction_record
from barnabas.coordinator.transaction_shard import MarkerToWrite, TransactionOutcome, TransactionShard
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.k24_add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from barnabas.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.wire.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from barnabas.wire.messages.k65_describe_transactions import TransactionState as Description
from barnabas.wire.messages.k66_list_transactions import ListTransactionsRequest

WALL_MS = 1_700_000_000_000
MAX_TIMEOUT_MS = 900_000
ID_EXPIRATION_MS = 7 * 24 * 3_600_000
ID = "payments"
A, B, C = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("totals", 0)

Producer = ProducerIdAndEpoch
Answer = tuple[ErrorCode, Producer]
NOBODY = Producer(-1, -1)


class Desk:
    """Version 2 of the transaction protocol unless a request's version says otherwise."""

    def __init__(self, producer_ids: Iterable[int | None] | None = None, id: str = ID) -> None:
        self.id = id  # that requests are for unless they say otherwise
        self._producer_ids = iter(count(1000) if producer_ids is None else producer_ids)
        self.monotonic_ms = 5_000
        self.wall_ms = WALL_MS
        self.records: list[CoordinatorRecord] = []
        self.markers: list[MarkerToWrite] = []
        """On their way: each once, with the partitions that are still without."""
        self.shard = self._new_shard()

    def _new_shard(self) -> TransactionShard:
        return TransactionShard(
            7,
            lambda: next(self._producer_ids, None),
            max_timeout_ms=MAX_TIMEOUT_MS,
            id_expiration_ms=ID_EXPIRATION_MS,
        )

    @property
    def now(self) -> Now:
        return Now(self.monotonic_ms, self.wall_ms)

    def pass_time(self, ms: int) -> None:
        self.monotonic_ms += ms
        self.wall_ms += ms

    def take(self, outcome: TransactionOutcome) -> Any:
        """What the driver does; the reply, if there is one."""
        self.records += outcome.records
        self.markers += outcome.markers
        assert len(outcome.replies) <= 1
        return outcome.replies[0][1] if outcome.replies else None

    def _id(self, id: str | None) -> str:
        return self.id if id is None else id

    # requests

    def init(
        self, expected: Producer = NOBODY, *, id: str | None = None, timeout_ms: int = 60_000, version: int = 5
    ) -> Answer:
        request = InitProducerIdRequest(
            transactional_id=self._id(id),
            transaction_timeout_ms=timeout_ms,
            producer_id=expected.producer_id,
            producer_epoch=expected.epoch,
        )
        answer: InitProducerIdResponse = self.take(self.shard.init_producer_id(request, version, "token", self.now))
        return ErrorCode(answer.error_code), Producer(answer.producer_id, answer.producer_epoch)

    def producer(self, **options: Any) -> Producer:
        code, producer = self.init(**options)
        assert code is ErrorCode.NONE
        return producer

    def producer_at_epoch(self, epoch: int) -> Producer:
        """The producer of an id that was used that often."""
        producer = Producer(self.producer().producer_id, epoch)
        self.records.append(transaction_record(replace(self.transaction(), producer_epoch=epoch)))
        self.restart()
        return producer

    def add(
        self,
        producer: Producer,
        *partitions: TopicPartition,
        id: str | None = None,
        version: int = 5,
        verify: bool = False,
    ) -> ErrorCode | dict[TopicPartition, ErrorCode]:
        """One code if all partitions have the same."""
        topics: dict[str, list[int]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        request = AddPartitionsToTxnTransaction(
            transactional_id=self._id(id),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            verify_only=verify,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()],
        )
        answer = self.take(self.shard.add_partitions_to_txn(request, version, "token", self.now))
        assert answer.transactional_id == request.transactional_id
        codes = {
            TopicPartition(topic.name, each.partition_index): ErrorCode(each.partition_error_code)
            for topic in answer.topic_results
            for each in topic.results_by_partition
        }
        return codes[partitions[0]] if len(set(codes.values())) == 1 else codes

    def add_offsets(
        self, producer: Producer, offsets: TopicPartition, *, id: str | None = None, version: int = 4
    ) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=self._id(id), producer_id=producer.producer_id, producer_epoch=producer.epoch, group_id="g"
        )
        answer = self.take(self.shard.add_offsets_to_txn(request, version, offsets, "token", self.now))
        return ErrorCode(answer.error_code)

    def end(self, producer: Producer, commit: bool, *, id: str | None = None, version: int = 5) -> Answer:
        request = EndTxnRequest(
            transactional_id=self._id(id),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commit,
        )
        answer: EndTxnResponse = self.take(self.shard.end_txn(request, version, "token", self.now))
        return ErrorCode(answer.error_code), Producer(answer.producer_id, answer.producer_epoch)

    def describe(self, id: str | None = None) -> Description:
        described: Description = self.take(self.shard.describe_transaction(self._id(id), "token"))
        return described

    def list(self, **filters: Any) -> list[str]:
        wanted = TransactionFilter(ListTransactionsRequest(**filters))
        found = self.take(self.shard.list_transactions(wanted, "token", self.now))
        return [each.transactional_id for each in found]

    # what goes on behind

    def write_markers(self, *partitions: TopicPartition) -> None:
        """All markers, or only those of some partitions, are written and acknowledged."""
        under_way, self.markers = self.markers, []
        for marker in under_way:
            written = [each for each in marker.partitions if not partitions or each in partitions]
            self.take(self.shard.markers_written(marker, written, self.now))
            rest = tuple(each for each in marker.partitions if each not in written)
            if rest:
                self.markers.append(marker._replace(partitions=rest))

    def expire(self) -> None:
        self.take(self.shard.expire(self.now))

    def replayed(self) -> TransactionShard:
        """Another shard, of the same records."""
        shard = self._new_shard()
        for offset, record in enumerate(self.records):
            shard.replay(record, offset, -1)
        return shard

    def restart(self) -> None:
        """The broker died, and with it the markers that were on their way."""
        self.markers = []
        self.shard = self.replayed()
        self.take(self.shard.loaded(self.now))

    def transaction(self, id: str | None = None) -> Transaction:
        return self.shard.transactions[self._id(id)]

    def state(self, id: str | None = None) -> str:
        return self.transaction(id).state.label
