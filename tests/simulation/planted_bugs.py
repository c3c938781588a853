"""Bugs that are planted, one at a time, to show that the simulation would find them.

    python -m tests.simulation 1000 --plant a-leader-epoch-reused      looks for a seed that finds it

Each names the scenario that finds it, a seed that did when it was last looked for, and one of the words by which the
anomaly is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from barnabas.broker.coordinators import Coordinator
from barnabas.client.consume.chunks import Chunk
from barnabas.client.group.commits import Commits
from barnabas.client.group.values import GroupMetadata
from barnabas.client.produce.sender import Sender
from barnabas.cluster import brokers, fold
from barnabas.cluster import records as r
from barnabas.cluster.copy_session import key_of
from barnabas.cluster.election import broker_goes
from barnabas.cluster.isr import InSync
from barnabas.cluster.partition import NO_EPOCH, Partition
from barnabas.cluster.replica_fetcher import ReplicaFetcher
from barnabas.coordination.memory import MemoryMetadata
from barnabas.coordinator.classic_state import ClassicGroupBase
from barnabas.coordinator.consumer_view import ConsumerGroupView
from barnabas.coordinator.transaction import ONGOING, Transaction
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.net.channel import Channel
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.log import Log
from barnabas.storage.producer_state import ProducerStates
from tests.simulation.simulated_disk import SimulatedFile


@dataclass(frozen=True, slots=True)
class PlantedBug:
    scenario: str
    seed: int | None
    """None while no seed is known that finds it."""
    symptoms: tuple[str, ...]
    plant: Callable[[], AbstractContextManager[Any]]

    def is_shown_by(self, problems: list[str]) -> bool:
        return any(symptom in problem for problem in problems for symptom in self.symptoms)


def instead(owner: object, name: str, bug: object) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: patch.object(owner, name, bug)


def _truncate_to_watermark(self: ReplicaFetcher, partition: Partition, add: Any = ReplicaFetcher.add) -> None:
    """What Kafka did before leader epochs (KIP-101)."""
    known = self._copies.get(key_of(partition))
    if known is None or known.leader_epoch != partition.leader_epoch:
        partition.truncate(min(partition.log.high_watermark, partition.log.log_end_offset))
    add(self, partition)


@contextmanager
def _epochs_reused() -> Iterator[None]:
    """A new leader leads under the epoch of the one before it; its brokers do not mind."""
    change, update = fold._FOLDS[r.PartitionChangeRecord], Partition.update

    def keep_epoch(builder: Any, record: Any) -> None:
        partitions = builder.touch_partitions(record.topic_id, record)
        epoch = partitions[record.partition_id].leader_epoch
        change(builder, record)
        partitions[record.partition_id] = replace(partitions[record.partition_id], leader_epoch=epoch)

    def follow(self: Partition, registration: Any, now_ms: int = 0) -> None:
        if registration.leader != self.leader:
            self.leader_epoch = NO_EPOCH
        update(self, registration, now_ms)

    with ExitStack() as planted:
        planted.enter_context(patch.dict(fold._FOLDS, {r.PartitionChangeRecord: keep_epoch}))
        planted.enter_context(patch.object(Partition, "update", follow))
        yield


def _forget_producers(self: Partition, was_leader: bool, begin: Any = Partition._begin_to_lead) -> None:
    if not was_leader:
        self.log.producers.entries.clear()
    begin(self, was_leader)


def _take_from_all(
    self: MemoryMetadata, epoch: int, index: int, *rest: Any, append: Any = MemoryMetadata.append
) -> Any:
    if epoch < self.claim.epoch:
        epoch, index = self.claim.epoch, self.next_index
    return append(self, epoch, index, *rest)


def _end_whatever_is_open(
    self: Transaction, producer_id: int, epoch: int, *rest: Any, decide: Any = Transaction.is_end_decided_now
) -> bool:
    if self.state is ONGOING and producer_id == self.producer_id and epoch < self.producer_epoch:
        epoch = self.producer_epoch
    decided: bool = decide(self, producer_id, epoch, *rest)
    return decided


@contextmanager
def _commits_from_anybody() -> Iterator[None]:
    with ExitStack() as planted:
        for group in (ClassicGroupBase, ConsumerGroupView):
            planted.enter_context(patch.object(group, "validate_offset_commit", lambda *_, **__: None))
        yield


async def _commit_anonymously(self: Commits, who: GroupMetadata, offsets: Any, send: Any = Commits._send) -> Any:
    return await send(self, GroupMetadata(who.group_id), offsets)


async def _wait_for_ever(self: Channel, message: Any, version: int) -> Any:
    """As it once was: when the connection broke, a future failed for which nobody waited any more."""
    return await self._begin(message, version)


def _epoch_of_its_beginning(self: Chunk, offset: int) -> int:
    """As it once was: that epoch may have ended before the offset, which then passed for truncated."""
    return self.batches[0][1].partition_leader_epoch if self.batches else self.last_epoch


async def _wait_for_nothing(self: Sender, error: KafkaError) -> None:
    """As it once was: nothing is under way any more while the last answer is being handed out."""
    self.abandon_waiting(error)
    while any(queue.in_flight for queue in self.active):
        await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
        self.abandon_waiting(error)
    self.fates.failures.clear()


async def _refuse_while_loading(self: Coordinator[Any], key: str) -> Any:
    """As it once was: a broker refused what FindCoordinator had sent it, until its shard was there."""
    driver = self.loaded(key)
    if driver is None:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)
    return driver


def _trust(*arguments: Any, is_clean: bool) -> Any:
    return broker_goes(*arguments, is_clean=True)


ONE, THREE, GROUP = "one_broker", "three_brokers", "consumer_group"
LOST, DIVERGED, TWICE = "lost write", "diverged replicas", "duplicate"

BUGS = {
    "a-disk-that-only-says-it-has-synced": PlantedBug(
        ONE, 1, (LOST, "inconsistent offsets"), instead(SimulatedFile, "sync", lambda _: None)
    ),
    "an-acknowledgement-before-the-sync": PlantedBug(
        ONE, 4, (LOST, "inconsistent offsets"), instead(Partition, "is_acknowledged", lambda *_: True)
    ),
    "a-retry-taken-for-new": PlantedBug(
        ONE, 1, (TWICE, "non-monotonic send"), instead(ProducerStates, "check_batch", lambda *_: None)
    ),
    "a-watermark-that-waits-for-nobody": PlantedBug(
        THREE, 2, (LOST,), instead(InSync, "least_end", lambda _, end: end)
    ),
    "a-follower-that-keeps-all-it-has": PlantedBug(
        THREE, 2, (DIVERGED,), instead(Partition, "divergence", lambda *_: None)
    ),
    "a-power-cut-that-passes-for-a-crash": PlantedBug(THREE, 14, (LOST,), instead(brokers, "broker_goes", _trust)),
    "a-follower-truncating-to-the-watermark": PlantedBug(
        THREE, 13, (LOST, DIVERGED, "inconsistent offsets"), instead(ReplicaFetcher, "add", _truncate_to_watermark)
    ),
    "an-isr-shrunk-without-the-controller": PlantedBug(
        THREE,
        13,
        (LOST, "inconsistent offsets"),
        instead(InSync, "maximal", property(lambda self: self.proposal.isr if self.proposal else self.committed)),
    ),
    "an-ack-before-the-watermark-moved": PlantedBug(
        THREE, 2, (LOST, "inconsistent offsets"), instead(Partition, "is_acknowledged", lambda *_: True)
    ),
    "a-leader-epoch-reused": PlantedBug(
        THREE, 2, (LOST, DIVERGED, "inconsistent offsets", "not healed"), _epochs_reused
    ),
    "producer-state-lost-in-a-fail-over": PlantedBug(
        THREE,
        2,
        (TWICE, "non-monotonic send", "forgotten sequence"),
        instead(Partition, "_begin_to_lead", _forget_producers),
    ),
    "a-stale-controllers-append": PlantedBug(
        THREE, 32, ("wrote in epoch",), instead(MemoryMetadata, "append", _take_from_all)
    ),
    "an-old-transactions-end": PlantedBug(
        THREE,
        72,
        ("aborted read", "precommitted read", LOST, "two outcomes", "double processing"),
        instead(Transaction, "is_end_decided_now", _end_whatever_is_open),
    ),
    "a-read-of-what-is-not-decided": PlantedBug(
        THREE, 0, ("G1c",), instead(Log, "last_stable_offset", property(lambda log: log.high_watermark))
    ),
    "a-fenced-members-commit": PlantedBug(GROUP, 18, ("backward commit", "lost commit"), _commits_from_anybody),
    "a-commit-without-an-identity": PlantedBug(
        GROUP, 1, ("does not settle", "CommitFailed"), instead(Commits, "_send", _commit_anonymously)
    ),
    "an-epoch-that-begins-too-early": PlantedBug(
        THREE,
        1,
        ("backward commit", "non-monotonic poll", "replica damaged"),
        instead(LeaderEpochs, "witness", lambda *_: None),
    ),
    "a-place-with-the-epoch-of-its-chunk": PlantedBug(
        THREE,
        16,
        ("double processing", "non-monotonic poll", "backward commit"),
        instead(Chunk, "epoch_at", _epoch_of_its_beginning),
    ),
    "a-wait-for-nothing": PlantedBug(
        THREE, 17, ("Set of Tasks/Futures is empty",), instead(Sender, "discard", _wait_for_nothing)
    ),
    "a-coordinator-that-is-named-too-early": PlantedBug(
        GROUP, 0, ("wrong coordinator",), instead(Coordinator, "ready", _refuse_while_loading)
    ),
    "a-future-that-nobody-waits-for": PlantedBug(
        THREE, None, ("never looked at", "exception was never retrieved"), instead(Channel, "_call", _wait_for_ever)
    ),
}
"""The last five were real."""


def planted(bug: str) -> AbstractContextManager[Any]:
    """The context in which a bug is there; none without a name."""
    return BUGS[bug].plant() if bug else nullcontext()
