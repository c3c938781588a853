"""A gap in the sequences of a producer: who may tell of it, and when it is none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.handlers import k00_produce
from barnabas.broker.refused_batches import KEPT_S, MOST, RefusedBatches
from barnabas.cluster.image import Partition as Registration
from barnabas.cluster.partition import Partition
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.unit.storage.storage_helpers import NOW_MS, batch, new_log, values

ME, OTHER, TOPIC, PRODUCER = 1, 2, "topic", 7
ALL, ALONE = (ME, OTHER), (ME,)


class Bench:
    """One partition of a broker, and its clock."""

    def __init__(self, directory: Path, *, is_heard_of: bool = True) -> None:
        self.partition = Partition(ME, new_log(directory, min_insync_replicas=2), lambda partition: None)
        self.now_s = 100.0
        self.counted: list[ErrorCode] = []
        clock: Any = SimpleNamespace(now_ms=lambda: NOW_MS, monotonic=lambda: self.now_s)
        self.refused_batches = RefusedBatches(clock)
        self._broker = SimpleNamespace(
            clock=clock,
            heartbeats=SimpleNamespace(is_answered=is_heard_of),
            metrics=SimpleNamespace(error=lambda key, code: self.counted.append(code)),
            refused_batches=self.refused_batches,
            replicas=SimpleNamespace(get=self._get, name_of=self._name_of),
        )
        self.is_known = True
        self._epoch = 0

    def lead(self, isr: tuple[int, ...] = ALONE, replicas: tuple[int, ...] = ALONE, leader: int = ME) -> None:
        self._epoch += 1
        self.partition.update(Registration(replicas, isr, leader, self._epoch, self._epoch))

    def _get(self, topic: str, index: int) -> Partition:
        if not self.is_known:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.partition

    def _name_of(self, topic_id: bytes) -> str:
        if not self.is_known:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return TOPIC

    def produce(self, value: bytes, sequence: int, epoch: int = 0, acks: int = 1, version: int = 11) -> ErrorCode:
        records = batch([value], producer=(PRODUCER, epoch, sequence))
        request = ProduceRequest(
            None, acks, 1000, [TopicProduceData(TOPIC, partition_data=[PartitionProduceData(0, records)])]
        )
        context: Any = SimpleNamespace(broker=self._broker, version=version)
        response = k00_produce.handle(request, context)
        assert isinstance(response, ProduceResponse)
        return ErrorCode(response.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize(
    ("is_heard_of", "code"),
    [(True, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), (False, ErrorCode.NOT_LEADER_OR_FOLLOWER)],
    ids=["a leader that the controller has heard of lately", "one that may have been replaced"],
)
def test_a_leader_tells_of_a_gap_only_if_nobody_else_can_have_what_is_missing(
    tmp_path: Path, is_heard_of: bool, code: ErrorCode
) -> None:
    bench = Bench(tmp_path, is_heard_of=is_heard_of)
    bench.lead()
    assert bench.produce(b"first", 0) is ErrorCode.NONE
    assert bench.produce(b"third", 2) is code
    assert bench.counted == [code]
    assert bench.produce(b"second", 1) is ErrorCode.NONE
    assert values(bench.partition.log) == [b"first", b"second"]


def test_batches_behind_a_refused_one_are_refused_as_it_was_until_it_comes_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.lead(ALL, ALL)
    bench.produce(b"first", 0)
    bench.lead(ALONE, ALL)
    assert bench.produce(b"second", 1, acks=-1) is ErrorCode.NOT_ENOUGH_REPLICAS
    bench.lead(ALL, ALL)
    assert bench.produce(b"third", 2) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert bench.produce(b"fourth", 3) is ErrorCode.NOT_ENOUGH_REPLICAS
    for number, value in enumerate((b"second", b"third", b"fourth"), 1):
        assert bench.produce(value, number) is ErrorCode.NONE
    assert values(bench.partition.log) == [b"first", b"second", b"third", b"fourth"]
    assert bench.produce(b"sixth", 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_leader_takes_no_later_batch_for_a_producers_first(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.lead(leader=OTHER)
    assert bench.produce(b"first", 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    bench.lead()
    assert bench.produce(b"second", 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert bench.produce(b"first", 0) is ErrorCode.NONE
    assert bench.produce(b"second", 1) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("version", "code"), [(11, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (13, ErrorCode.UNKNOWN_TOPIC_ID)]
)
def test_a_broker_that_learns_of_a_topic_takes_no_later_batch_for_a_producers_first(
    tmp_path: Path, version: int, code: ErrorCode
) -> None:
    bench = Bench(tmp_path)
    bench.lead()
    bench.is_known = False
    assert bench.produce(b"first", 0, version=version) is code
    bench.is_known = True
    assert bench.produce(b"second", 1, version=version) is code
    assert bench.produce(b"first", 0, version=version) is ErrorCode.NONE
    assert bench.produce(b"second", 1, version=version) is ErrorCode.NONE
    assert values(bench.partition.log) == [b"first", b"second"]


def test_a_refusal_counts_for_one_epoch_and_a_short_while(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.lead()
    assert bench.produce(b"first", 0) is ErrorCode.NONE
    for epoch, wait_s, code in ((0, KEPT_S + 0.1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), (1, 0.0, ErrorCode.NONE)):
        bench.lead(leader=OTHER)
        assert bench.produce(b"second", 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        bench.lead()
        bench.now_s += wait_s
        assert bench.produce(b"third", 2 if epoch == 0 else 0, epoch) is code
        assert not bench.refused_batches


def test_few_refusals_are_remembered(tmp_path: Path) -> None:
    refused = Bench(tmp_path).refused_batches
    records = [batch([b"any"], producer=(producer, 0, sequence)) for producer in range(MOST + 1) for sequence in (0, 1)]
    for first in records[::2]:
        refused.note(TOPIC, 0, first, ErrorCode.NOT_ENOUGH_REPLICAS)
    answers = [refused.answer_to(TOPIC, 0, second) for second in records[1::2]]
    assert answers == [None, *[ErrorCode.NOT_ENOUGH_REPLICAS] * MOST]


def test_sequences_that_wrap_come_later_all_the_same(tmp_path: Path) -> None:
    refused = Bench(tmp_path).refused_batches
    refused.note(TOPIC, 0, batch([b"last"], producer=(PRODUCER, 0, 2**31 - 1)), ErrorCode.NOT_ENOUGH_REPLICAS)
    following = batch([b"first"], producer=(PRODUCER, 0, 0))
    assert refused.answer_to(TOPIC, 0, following) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert refused.answer_to(TOPIC, 1, following) is None
