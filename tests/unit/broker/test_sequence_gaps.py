"""A gap in the sequences of a producer: who may tell of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.handlers import k00_produce
from barnabas.cluster.image import Partition as Registration
from barnabas.cluster.partition import Partition
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.unit.storage.storage_helpers import NOW_MS, batch, new_log, values

ME, TOPIC, PRODUCER = 1, "topic", 7


def _produce(broker: Any, value: bytes, sequence: int) -> ErrorCode:
    records = batch([value], producer=(PRODUCER, 0, sequence))
    request = ProduceRequest(
        None, -1, 1000, [TopicProduceData(TOPIC, partition_data=[PartitionProduceData(0, records)])]
    )
    context: Any = SimpleNamespace(broker=broker, version=11)
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
    partition = Partition(ME, new_log(tmp_path), lambda partition: None)
    partition.update(Registration((ME,), (ME,), ME, 0, 0))
    counted: list[ErrorCode] = []
    broker = SimpleNamespace(
        clock=SimpleNamespace(now_ms=lambda: NOW_MS),
        heartbeats=SimpleNamespace(is_answered=is_heard_of),
        metrics=SimpleNamespace(error=lambda key, code: counted.append(code)),
        replicas=SimpleNamespace(get=lambda topic, index: partition),
    )
    assert _produce(broker, b"first", 0) is ErrorCode.NONE
    assert _produce(broker, b"third", 2) is code
    assert counted == [code]
    assert _produce(broker, b"second", 1) is ErrorCode.NONE
    assert values(partition.log) == [b"first", b"second"]
