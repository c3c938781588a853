"""The metadata store of a simulated cluster, and somebody who sees every change at the moment at which it counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from barnabas.cluster import image as images
from barnabas.cluster import records as r
from barnabas.cluster.fold import apply
from barnabas.cluster.partition_change import RECOVERING
from barnabas.coordination.memory import MemoryMetadata
from barnabas.coordination.store import Answer, Done
from tests.checker.history import TopicPartition


class WatchedMetadata(MemoryMetadata):
    """The store itself, which takes changes from nobody but the controller of its time."""

    def __init__(self, watcher: Callable[[images.Image, images.Image], None] = lambda before, after: None) -> None:
        super().__init__()
        self._watcher = watcher
        self.image = images.EMPTY
        self.problems: list[str] = []

    def append(self, epoch: int, index: int, append_id: bytes, records: tuple[bytes, ...]) -> Answer:
        answer = super().append(epoch, index, append_id, records)
        if isinstance(answer, Done):
            if epoch != self.claim.epoch:
                self.problems.append(f"the controller of epoch {epoch} wrote in epoch {self.claim.epoch}")
            before = self.image
            self.image = apply(before, map(r.decode, records), self.next_index)
            self._watcher(before, self.image)
        return answer


def all_partitions(image: images.Image) -> Iterator[tuple[TopicPartition, images.Partition]]:
    for topic in image.topics.values():
        for index, registration in enumerate(topic.partitions):
            yield TopicPartition(topic.name, index), registration


def unclean_elections(before: images.Image, after: images.Image) -> Iterator[TopicPartition]:
    """The partitions whose new leader may lack something."""
    for partition, new in all_partitions(after):
        old = before.partition(*partition)
        if old is None or old.leader_epoch == new.leader_epoch or new.leader_recovery_state != RECOVERING:
            continue
        if new.leader >= 0 and new.leader not in (*old.isr, *old.eligible_leader_replicas):
            yield partition


def waits_for_operator(registration: images.Partition) -> bool:
    """Nobody is left who is known to have everything."""
    return registration.leader < 0 and not registration.isr and not registration.eligible_leader_replicas
