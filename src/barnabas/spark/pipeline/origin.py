"""Where a pipeline begins in each partition: decided once, and kept, so that `latest` means the first start."""

from __future__ import annotations

import logging

from barnabas.spark.pipeline.definition import Pipeline
from barnabas.spark.pipeline.errors import PipelineError
from barnabas.spark.pipeline.sinks import Offsets
from barnabas.spark.pipeline.state import State
from barnabas.spark.pipeline.topics import Layout, Positions, TopicOffsets

log = logging.getLogger(__name__)

_REMEDY = "to begin again, give the pipeline another name and state, and a lake another path"


def find_origin(pipeline: Pipeline, topics: TopicOffsets, layout: Layout, state: State) -> Positions:
    """Where the pipeline begins, from now on for good."""
    found = look_for_origin(pipeline, topics, layout, state)
    known = state.origin()
    if found != known:
        state.save_origin({**known, **found}, {**state.topic_ids(), **layout.topic_ids})
    return found


def look_for_origin(pipeline: Pipeline, topics: TopicOffsets, layout: Layout, state: State) -> Positions:
    """What the state says, and for partitions that it does not know: the source's start, or the beginning of one that
    was added to a topic since. Nothing is kept of it."""
    known, ids = state.origin(), state.topic_ids()
    for topic, topic_id in layout.topic_ids.items():
        if ids.get(topic, topic_id) != topic_id:
            raise PipelineError(
                f"topic {topic!r} was deleted and made anew since the pipeline began, so that its offsets are those of "
                f"other records; {_REMEDY}"
            )
    found: Positions = {}
    for source in pipeline.sources:
        partitions = layout.partitions[source.name]
        at = layout.part(source.name, known)
        if len(at) < len(partitions):
            begins = not at and not source.is_table
            only = Layout({source.name: partitions})
            at = {**(topics.start(source, partitions) if begins else topics.earliest(only)), **at}
        found.update(at)
    return found


def tell_removed(sink: str, origin: Offsets, at: Offsets) -> None:
    """Of a sink that begins later than the pipeline did: what it has missed was there for the others only."""
    late = [
        f"{topic}-{number} at offset {at[topic, number]} instead of {first}"
        for (topic, number), first in sorted(origin.items())
        if at[topic, number] > first
    ]
    if late:
        log.warning("sink %r is new, and the first records have been removed: it begins %s", sink, ", ".join(late))


def check_within(sink: str, at: Offsets, latest: Offsets) -> None:
    """A topic cannot end before what was read of it, unless it is another one."""
    for partition, offset in at.items():
        end = latest.get(partition, offset)
        if offset > end:
            topic, number = partition
            raise PipelineError(
                f"sink {sink!r} has partition {number} of topic {topic!r} up to offset {offset}, but that ends at "
                f"{end}: the topic was made anew or cut; {_REMEDY}"
            )
