"""Records that a stream can no longer read: what was lost, and why.

Retention moves the beginning of a log past the place of the stream. A topic that was deleted and made anew has another
topic id, and its offsets mean nothing in the old one. A leader that was elected without all records cuts the log off,
and others get the offsets of those that were read: the old leader epoch then ends before the place. What to do about
it is `failOnDataLoss`: stop the query, or warn and go on with what is there.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from barnabas.client.metadata import TopicPartition
from barnabas.spark.ranges import OffsetRange
from barnabas.spark.stream_places import Place

log = logging.getLogger(__name__)

SKIP_LOSSES = "set failOnDataLoss=false"
"""What errors say to do; a pipeline has other words for it."""
_MOST_TOLD = 10


class Cause(Enum):
    """What happened, with the words that tell it."""

    RETENTION = "offsets {first} to {last} were removed before they were read, by retention or a deletion of records"
    RECREATED = "topic {topic!r} was deleted and made anew; what was in the old one from offset {first} on is lost"
    DELETED = "topic {topic!r} is gone; what was in it from offset {first} on is lost"
    NOT_READ = "it is in the checkpoint, and no longer among what is read; what follows offset {first} is left out"
    TRUNCATED = (
        "the log was cut off at offset {first} when a leader was elected without the records up to {last}; "
        "others have their offsets now"
    )
    SHORTER = "the log ends at offset {first}, before the place of the stream, {next}; was the topic made anew?"
    FOUND_LATE = "the partition is new to the query, and offsets {first} to {last} were removed before it was found"


@dataclass(frozen=True, slots=True)
class Loss:
    """Offsets of a partition, from `first` up to, not including, `end`; None where nobody knows."""

    partition: TopicPartition
    cause: Cause
    first: int
    end: int | None = None

    def __str__(self) -> str:
        last = None if self.end is None else self.end - 1
        told = self.cause.value.format(topic=self.partition.topic, first=self.first, last=last, next=self.end)
        return f"{self.partition}: {told}"


class DataLost(Exception):
    """What a query with `failOnDataLoss` stops for."""

    def __init__(self, losses: Collection[Loss]) -> None:
        told = [str(loss) for loss in losses][:_MOST_TOLD]
        more = [f"and {len(losses) - _MOST_TOLD} more"] if len(losses) > _MOST_TOLD else []
        remedy = f"{SKIP_LOSSES} to warn of it and to go on with what is there"
        super().__init__("; ".join([*told, *more, remedy]))
        self.losses = tuple(losses)


def report(losses: Collection[Loss], *, fail: bool) -> None:
    """Do what `failOnDataLoss` says."""
    if losses and fail:
        raise DataLost(losses)
    for loss in losses:
        log.warning("data was lost, and failOnDataLoss is false: %s", loss)


@dataclass(frozen=True, slots=True)
class Now:
    """What the cluster knows of a partition when a batch is planned."""

    topic_id: str
    log_start_offset: int
    start_epoch_end: int | None = None
    """Where the epoch of the batch's start ended; None where the epoch is still the same, or not known."""
    end_epoch_end: int | None = None
    """The same of its end, which is older than now where a batch of an earlier run is done again."""


def find_losses(
    start: Place, end: Place, now: Mapping[TopicPartition, Now | None]
) -> tuple[list[OffsetRange], list[Loss]]:
    """What to read in each partition of a batch, so that nothing that is there is left out; and what is not there.

    A partition that nobody knows any more is None in `now`.
    """
    ranges: list[OffsetRange] = []
    losses: list[Loss] = []
    for partition in end.offsets:
        first, until, lost = _readable(partition, start, end, now.get(partition))
        ranges.append(OffsetRange(*partition, first, max(first, until)))
        losses += lost
    return ranges, losses


def _readable(partition: TopicPartition, start: Place, end: Place, now: Now | None) -> tuple[int, int, list[Loss]]:
    before, until = start.offsets.get(partition), end.offsets[partition]
    if now is None:
        return until, until, [Loss(partition, Cause.DELETED, before or 0, until)]
    if end.topic_ids.get(partition.topic, now.topic_id) != now.topic_id:
        return until, until, [Loss(partition, Cause.RECREATED, before or 0, until)]
    first = now.log_start_offset
    if before is None:
        return first, until, [Loss(partition, Cause.FOUND_LATE, 0, first)] if first > 0 else []
    if start.topic_ids.get(partition.topic, now.topic_id) != now.topic_id:
        return first, until, [Loss(partition, Cause.RECREATED, before)]
    losses = []
    if now.start_epoch_end is not None and now.start_epoch_end < before:
        losses.append(Loss(partition, Cause.TRUNCATED, now.start_epoch_end, before))
        before = now.start_epoch_end
    elif until < before:
        losses.append(Loss(partition, Cause.SHORTER, until, before))
        before = until
    if now.end_epoch_end is not None and now.end_epoch_end < until:
        losses.append(Loss(partition, Cause.TRUNCATED, now.end_epoch_end, until))
        until = now.end_epoch_end
    if first > before:
        losses.append(Loss(partition, Cause.RETENTION, before, first))
    return max(before, first), until, losses
