"""What differs between two images, for those who act on it.

Images share what did not change, so identity tells most of it: a mapping that is the same object needs no look inside.
One comparison serves the follower that applied every record and the one that jumped over a snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TypeVar

from barnabas.cluster.image import ConfigResource, Image, Topic
from barnabas.core.dataclass import dataclass

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Delta:
    """`brokers` and `configs` name what was added, changed or taken away; the image says which.

    `partitions` holds, for topics that stayed, the partitions that changed or are new. A topic that was deleted and
    created again under its name is in `deleted` with its old id and in `created` with its new one.
    """

    created: tuple[Topic, ...] = ()
    deleted: tuple[Topic, ...] = ()
    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    brokers: frozenset[int] = frozenset()
    configs: frozenset[ConfigResource] = frozenset()
    features: bool = False
    producer_ids: bool = False
    quotas: bool = False
    acls: bool = False
    scram: bool = False


def changes(old: Image, new: Image) -> Delta:
    created: list[Topic] = []
    deleted: list[Topic] = []
    partitions: dict[str, tuple[int, ...]] = {}
    for name in _differing(old.topics, new.topics):
        before, after = old.topics.get(name), new.topics.get(name)
        if before and after and before.id == after.id:
            partitions[name] = _changed_partitions(before, after)
            continue
        if before:
            deleted.append(before)
        if after:
            created.append(after)
    return Delta(
        tuple(created),
        tuple(deleted),
        partitions,
        frozenset(_differing(old.brokers, new.brokers)),
        frozenset(_differing(old.configs, new.configs)),
        old.features != new.features,
        old.next_producer_id != new.next_producer_id,
        old.quotas != new.quotas,
        old.acls != new.acls,
        old.scram != new.scram,
    )


def _differing(old: Mapping[K, V], new: Mapping[K, V]) -> list[K]:
    """The keys whose values are not the same object: those that went, then those that are new or changed."""
    if old is new:
        return []
    gone = [key for key in old if key not in new]
    get = old.get
    return gone + [key for key, value in new.items() if get(key) is not value]


def _changed_partitions(before: Topic, after: Topic) -> tuple[int, ...]:
    common = zip(before.partitions, after.partitions)
    changed = [number for number, (was, now) in enumerate(common) if was is not now]
    return (*changed, *range(len(before.partitions), len(after.partitions)))
