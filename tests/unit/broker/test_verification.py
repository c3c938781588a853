"""A request of a transaction waits for the coordinator, and the transaction ends meanwhile."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.dispatch import Later
from barnabas.broker.handlers import k00_produce, k28_txn_offset_commit
from barnabas.broker.refused_batches import RefusedBatches
from barnabas.cluster.image import Partition as Registration
from barnabas.cluster.partition import Partition
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.records.control import ControlType, EndMarker
from barnabas.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from barnabas.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.unit.storage.storage_helpers import NOW_MS, batch, new_log, values

ME = 1
NAME, TOPIC, PRODUCER, EPOCH = "x", "topic", 7, 0
VERIFIED = AddPartitionsToTxnResult(NAME, [])
REFUSED = AddPartitionsToTxnResult(
    NAME,
    [
        AddPartitionsToTxnTopicResult(
            "__consumer_offsets", [AddPartitionsToTxnPartitionResult(0, ErrorCode.TRANSACTION_ABORTABLE)]
        )
    ],
)


class Bench:
    """A partition on a real log, and a coordinator that answers when the test says so."""

    def __init__(self, directory: Path) -> None:
        self.partition = Partition(ME, new_log(directory), lambda partition: None)
        self.partition.update(Registration((ME,), (ME,), ME, 0, 0))
        self.verdict: asyncio.Future[AddPartitionsToTxnResult] = asyncio.get_running_loop().create_future()
        self.committed = 0
        clock: Any = SimpleNamespace(now_ms=lambda: NOW_MS, monotonic=lambda: NOW_MS / 1000)
        self.broker: Any = SimpleNamespace(
            clock=clock,
            refused_batches=RefusedBatches(clock),
            metadata=SimpleNamespace(image=SimpleNamespace(partition=lambda topic, index: True)),
            metrics=SimpleNamespace(error=lambda key, code: None),
            replicas=SimpleNamespace(partitions={(TOPIC, 0): self.partition}, get=lambda topic, index: self.partition),
            transactions=SimpleNamespace(loaded=lambda _: SimpleNamespace(execute=lambda *_: self.verdict)),
            groups=SimpleNamespace(ready=self._group_shard, execute=self._commit_offsets),
        )

    def context(self, version: int) -> Any:
        return SimpleNamespace(broker=self.broker, version=version)

    def end(self, epoch: int) -> None:
        marker = EndMarker(ControlType.COMMIT, coordinator_epoch=0)
        self.partition.append_end_marker(marker, PRODUCER, epoch, 0, NOW_MS)

    async def _group_shard(self, group: str) -> Any:
        return SimpleNamespace(partition=self.partition)

    def _commit_offsets(self, *_: object) -> asyncio.Future[TxnOffsetCommitResponse]:
        self.committed += 1
        done: asyncio.Future[TxnOffsetCommitResponse] = asyncio.get_running_loop().create_future()
        done.set_result(TxnOffsetCommitResponse())
        return done


def _offsets() -> TxnOffsetCommitRequest:
    topic = TxnOffsetCommitRequestTopic(TOPIC, [TxnOffsetCommitRequestPartition(0, 1, -1, "")])
    return TxnOffsetCommitRequest(NAME, "group", PRODUCER, EPOCH, topics=[topic])


@pytest.mark.parametrize(
    ("version", "end_epoch"), [(4, EPOCH), (5, EPOCH + 1)], ids=["first protocol", "second protocol"]
)
def test_offsets_are_not_committed_once_the_transaction_has_ended(tmp_path: Path, version: int, end_epoch: int) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        commit = asyncio.ensure_future(k28_txn_offset_commit.handle(_offsets(), bench.context(version)))
        await asyncio.sleep(0)
        bench.end(end_epoch)
        bench.verdict.set_result(VERIFIED)
        assert (await commit).topics[0].partitions[0].error_code == ErrorCode.INVALID_TXN_STATE
        assert bench.committed == 0

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("verdict", "expected"), [(VERIFIED, []), (REFUSED, [ErrorCode.TRANSACTION_ABORTABLE])], ids=["verified", "refused"]
)
def test_offsets_wait_for_the_verdict(
    tmp_path: Path, verdict: AddPartitionsToTxnResult, expected: list[ErrorCode]
) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        commit = asyncio.ensure_future(k28_txn_offset_commit.handle(_offsets(), bench.context(4)))
        await asyncio.sleep(0)
        assert not commit.done()
        bench.verdict.set_result(verdict)
        codes = [each.error_code for topic in (await commit).topics for each in topic.partitions]
        assert codes == expected
        assert bench.committed == (not expected)

    asyncio.run(scenario())


def test_a_refusal_that_nobody_waits_for_any_more_is_looked_at_all_the_same(tmp_path: Path) -> None:
    async def scenario() -> None:
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        bench = Bench(tmp_path)
        commit = asyncio.ensure_future(k28_txn_offset_commit.handle(_offsets(), bench.context(4)))
        await asyncio.sleep(0)
        commit.cancel()
        await asyncio.wait([commit])
        bench.verdict.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))
        await asyncio.sleep(0)
        del bench, commit  # and with them the refusal, which complains if it was not looked at
        gc.collect()
        assert complaints == []

    asyncio.run(scenario())


def _records() -> ProduceRequest:
    records = batch([b"late"], producer=(PRODUCER, EPOCH, 0), transactional=True)
    return ProduceRequest(NAME, -1, 1000, [TopicProduceData(TOPIC, partition_data=[PartitionProduceData(0, records)])])


@pytest.mark.parametrize(
    ("version", "end_epoch", "code"),
    [
        (11, None, ErrorCode.NONE),
        (11, EPOCH, ErrorCode.INVALID_TXN_STATE),
        (12, None, ErrorCode.NONE),
        (12, EPOCH + 1, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_records_are_not_appended_once_the_transaction_has_ended(
    tmp_path: Path, version: int, end_epoch: int | None, code: ErrorCode
) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        answer = k00_produce.handle(_records(), bench.context(version))
        assert isinstance(answer, Later)
        told: list[ProduceResponse | None] = []
        answer.then(told.append)
        if end_epoch is not None:
            bench.end(end_epoch)
        bench.verdict.set_result(VERIFIED)
        for _ in range(3):  # until all call-backs were called
            await asyncio.sleep(0)
        assert told[0] is not None
        assert told[0].responses[0].partition_responses[0].error_code == code
        assert values(bench.partition.log) == ([] if code else [b"late"])

    asyncio.run(scenario())


def test_who_leads_no_longer_when_the_verdict_comes_says_so_and_not_that_the_transaction_has_ended(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        answer = k00_produce.handle(_records(), bench.context(12))
        assert isinstance(answer, Later)
        told: list[ProduceResponse | None] = []
        answer.then(told.append)
        bench.partition.update(Registration((ME, ME + 1), (ME + 1,), ME + 1, 1, 1))
        bench.partition.log.producers.clear()  # as a follower that cuts its log does
        bench.verdict.set_result(VERIFIED)
        for _ in range(3):  # until all call-backs were called
            await asyncio.sleep(0)
        assert told[0] is not None
        assert told[0].responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    asyncio.run(scenario())


def test_a_broker_that_stops_while_it_asks_leaves_no_failure_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        failures: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, failure: failures.append(failure))
        asking: asyncio.Future[dict[tuple[str, int], ErrorCode]] = loop.create_future()
        monkeypatch.setattr(k00_produce, "join_transaction", lambda *_, **__: asking)
        bench = Bench(tmp_path)
        assert isinstance(k00_produce.handle(_records(), bench.context(12)), Later)
        asking.cancel()
        await asyncio.sleep(0)
        assert failures == []
        assert values(bench.partition.log) == []

    asyncio.run(scenario())
