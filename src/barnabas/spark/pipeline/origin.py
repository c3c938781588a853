"""Where a pipeline begins in each partition: decided once, and kept, so that `latest` means the first start."""

from __future__ import annotations

from barnabas.spark.pipeline.definition import Pipeline
from barnabas.spark.pipeline.errors import PipelineError
from barnabas.spark.pipeline.sinks import Offsets
from barnabas.spark.pipeline.state import State
from barnabas.spark.pipeline.topics import Layout, Positions, TopicOffsets


def find_origin(pipeline: Pipeline, topics: TopicOffsets, layout: Layout, state: State) -> Positions:
    """What the state says, and for partitions that it does not know: the source's start, or the beginning of one that
    was added to a topic since."""
    known = state.origin()
    found: Positions = {}
    for source in pipeline.sources:
        partitions = layout.partitions[source.name]
        at = layout.part(source.name, known)
        if len(at) < len(partitions):
            begins = not at and not source.is_table
            only = Layout({source.name: partitions})
            at = {**(topics.start(source, partitions) if begins else topics.earliest(only)), **at}
        found.update(at)
    if found != known:
        state.save_origin({**known, **found})
    return found


def check_within(sink: str, at: Offsets, latest: Offsets) -> None:
    """A topic cannot end before what was read of it, unless it is another one."""
    for partition, offset in at.items():
        end = latest.get(partition, offset)
        if offset > end:
            topic, number = partition
            raise PipelineError(
                f"sink {sink!r} has partition {number} of topic {topic!r} up to offset {offset}, but that ends at "
                f"{end}: the topic was made anew or cut; use another name for the pipeline to begin again"
            )
