"""What the driver asks the cluster: which partitions the sources have, and their offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import TracebackType
from typing import Any, Self, TypeVar

from barnabas.client.admin.log_dirs import LogDirs
from barnabas.client.client import Client
from barnabas.client.list_offsets import Isolation
from barnabas.client.metadata import TopicPartition
from barnabas.core.errors import KafkaError
from barnabas.spark.cluster import find_partitions, new_runner, open_client
from barnabas.spark.offsets import AtOffsets, AtTimes, Earliest, Latest, Limit, parse_offsets, resolve_limit
from barnabas.spark.options import ReadOptions, parse_batch_options
from barnabas.spark.pipeline.definition import Cluster, Source, parse_time_ms
from barnabas.spark.pipeline.errors import PipelineError
from barnabas.spark.pipeline.sinks import Offsets

T = TypeVar("T")
Positions = dict[tuple[str, int], int]
_NEW_TOPIC_S = 3.0
"""Brokers learn of a new topic a moment after it was created."""
_LIMITS: Mapping[str, Limit] = {"earliest": Earliest(), "latest": Latest()}


@dataclass(frozen=True)
class Layout:
    """Which partitions belong to which source. No partition belongs to two, or its offsets would count twice."""

    partitions: Mapping[str, Sequence[TopicPartition]]
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        owners: dict[TopicPartition, str] = {}
        for source, partitions in self.partitions.items():
            for partition in partitions:
                if owners.setdefault(partition, source) != source:
                    problem = f"topic {partition.topic!r} is read by two sources, {owners[partition]!r} and {source!r}"
                    raise PipelineError(f"{problem}; read it once, and make two views of it")

    def part(self, source: str, offsets: Offsets) -> Positions:
        """What some offsets say of the partitions of a source."""
        owned = ((partition.topic, partition.partition) for partition in self.partitions[source])
        return {partition: offsets[partition] for partition in owned if partition in offsets}

    def parts(self, sources: Iterable[str], offsets: Offsets) -> Positions:
        return {partition: offset for source in sources for partition, offset in self.part(source, offsets).items()}


class TopicOffsets:
    """A connection for the length of a run."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._options = parse_batch_options({**cluster.source_options(), "subscribe": "any"})
        self._runner = new_runner()

    def __enter__(self) -> Self:
        try:
            self._client = self._runner.run(self._open())
        except KafkaError as error:
            self._runner.close()
            raise PipelineError(str(error)) from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with self._runner:
            self._runner.run(self._client.__aexit__(kind, error, tb))

    async def _open(self) -> Client:
        return await open_client(self._options.kafka).__aenter__()

    @property
    def isolation(self) -> Isolation:
        return self._options.isolation

    def partitions(self, source: Source) -> list[TopicPartition]:
        """An error that names a topic which does not exist, and the nearest one that does."""
        options = self._read_options(source)
        self._run(self._check_topics(source))
        found = self._run(find_partitions(self._client, options.topics))
        if not found:
            raise PipelineError(f"source {source.name!r}: no topic has a name like {source.pattern}")
        return found

    def layout(self, sources: Iterable[Source]) -> Layout:
        partitions = {source.name: self.partitions(source) for source in sources}
        known = self._client.metadata.cluster.topics
        names = {partition.topic for some in partitions.values() for partition in some}
        return Layout(partitions, {name: known[name].topic_id.hex() for name in names if name in known})

    def start(self, source: Source, partitions: Sequence[TopicPartition]) -> Positions:
        """Where the source's file says that it begins."""
        return self._resolve(partitions, _start_limit(source.start))

    def earliest(self, layout: Layout) -> Positions:
        return self._resolve(_all(layout), Earliest())

    def latest(self, layout: Layout) -> Positions:
        return self._resolve(_all(layout), Latest())

    def at_time(self, layout: Layout, time: str) -> Positions:
        """The first offset at or after a time; the end of a partition that has nothing so young."""
        return self._resolve(_all(layout), AtTimes(parse_time_ms(time), or_latest=True))

    def sizes(self, layout: Layout) -> Positions | None:
        """Bytes on disk by partition, of its largest replica; None if the cluster does not report them."""
        try:
            found = self._runner.run(LogDirs(self._client).describe(partitions=_all(layout)))
        except KafkaError:  # the right to ask may be missing, and nothing depends on it
            return None
        sizes: Positions = {}
        for replica in (each for dirs in found.values() for directory in dirs for each in directory.replicas):
            where = replica.partition.topic, replica.partition.partition
            sizes[where] = max(replica.size_bytes, sizes.get(where, 0))
        return sizes

    def _read_options(self, source: Source) -> ReadOptions:
        return parse_batch_options({**self._cluster.source_options(), **source.topic_options()})

    def _resolve(self, partitions: Sequence[TopicPartition], limit: Limit) -> Positions:
        found = self._run(resolve_limit(self._client, partitions, limit, self.isolation))
        return {(partition.topic, partition.partition): offset for partition, offset in found.items()}

    async def _check_topics(self, source: Source) -> None:
        deadline = asyncio.get_running_loop().time() + _NEW_TOPIC_S
        while True:
            there = {topic.name for topic in await self._client.retrying(self._client.metadata.all_topics)}
            missing = [topic for topic in source.topics if topic not in there]
            if not missing:
                return
            if asyncio.get_running_loop().time() > deadline:
                near = get_close_matches(missing[0], there, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise PipelineError(f"source {source.name!r}: topic {missing[0]!r} does not exist{hint}")
            await asyncio.sleep(0.1)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._runner.run(work)
        except KafkaError as error:
            raise PipelineError(str(error)) from None
        except ValueError as error:  # an option, or offsets that name other partitions than there are
            raise PipelineError(str(error)) from None


def _all(layout: Layout) -> list[TopicPartition]:
    return [partition for partitions in layout.partitions.values() for partition in partitions]


def _start_limit(start: str) -> Limit:
    if start in _LIMITS:
        return _LIMITS[start]
    if start.lstrip().startswith("{"):
        return AtOffsets(parse_offsets("start", start), "start")
    return AtTimes(parse_time_ms(start), "start", or_latest=True)
