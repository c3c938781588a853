"""How far a stream has come, as it stands in Spark's checkpoint and in the progress of a query.

{"orders": {"0": 23, "1": 7}, "#": {"group": "billing", "ids": {"orders": "9Zk..."}, "epochs": {"orders": {"0": 4, ...

The first part is what Spark's own Kafka source writes, so a checkpoint of that source can be gone on with. What stands
under "#", which no topic can be called, tells another topic of the same name from the one that was read, and a log that
was cut off and grew again from one that only grew; and it keeps the name of the group that shows the stream's lag.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from barnabas.client.metadata import TopicPartition
from barnabas.spark.offsets import nested, unnested

_IDENTITY = "#"


class HasTopicIds(Protocol):
    @property
    def topic_ids(self) -> Mapping[str, str]: ...


@dataclass(frozen=True)
class Place:
    offsets: Mapping[TopicPartition, int]
    """Of the record that is to be read next."""
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Of the leader that told of the offset: its log reached at least so far."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    group: str | None = None

    def epoch(self, partition: TopicPartition) -> int:
        return self.epochs.get(partition, -1)

    def is_same(self, partition: TopicPartition, other: HasTopicIds) -> bool:
        """Whether the topic is the one that the other knows by this name; an id that was never told is taken for it."""
        known = self.topic_ids.get(partition.topic)
        return known is None or known == other.topic_ids.get(partition.topic)

    def dump(self) -> dict[str, Any]:
        identity = {"group": self.group, "ids": dict(sorted(self.topic_ids.items())), "epochs": nested(self.epochs)}
        return {**nested(self.offsets), _IDENTITY: identity}


def load_place(written: Mapping[str, Any]) -> Place:
    identity = written.get(_IDENTITY, {})
    return Place(
        offsets=unnested({topic: offsets for topic, offsets in written.items() if topic != _IDENTITY}),
        epochs=unnested(identity.get("epochs", {})),
        topic_ids=identity.get("ids", {}),
        group=identity.get("group"),
    )
