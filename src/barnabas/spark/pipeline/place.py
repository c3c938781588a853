"""How far a sink is, where it is kept as one text beside the data: a decision's name, a commit's note."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from barnabas.spark.pipeline.errors import SinkError
from barnabas.spark.pipeline.sinks import Batch, Offsets


@dataclass(frozen=True, slots=True)
class Place:
    """The next offset of every partition that a sink has read, and the last batch of each stateful query."""

    offsets: Offsets = field(default_factory=dict)
    batches: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Self:
        document = json.loads(text)
        offsets = {
            (topic, int(partition)): end
            for topic, ends in document["offsets"].items()
            for partition, end in ends.items()
        }
        return cls(offsets, document["batches"])

    def __str__(self) -> str:
        """The same text for the same place."""
        ends: dict[str, dict[str, int]] = {}
        for (topic, partition), end in sorted(self.offsets.items()):
            ends.setdefault(topic, {})[str(partition)] = end
        return json.dumps({"offsets": ends, "batches": self.batches}, separators=(",", ":"), sort_keys=True)

    def has(self, batch: Batch) -> bool:
        """Whether the batch is done. A SinkError if it is done in part: whoever planned it did not know this place."""
        if not batch.is_by_offsets:
            return self.batches.get(batch.query_id, -1) >= batch.number
        if batch.is_done_at(self.offsets):
            return True
        for (topic, partition), start in batch.start.items():
            done = self.offsets.get((topic, partition), start)
            if done > start:
                raise SinkError(
                    f"the sink has {topic}-{partition} up to offset {done}, and batch {batch.number} begins at {start}:"
                    " another run has moved on; nothing was written"
                )
        return False

    def after(self, batch: Batch) -> Place:
        if batch.is_by_offsets:
            return Place({**self.offsets, **batch.end}, self.batches)
        return Place(self.offsets, {**self.batches, batch.query_id: batch.number})
