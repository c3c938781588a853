"""How much is to be copied when replicas move, how much of it has been, and how people see that."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager

from barnabas.cli.progress import Unit
from barnabas.cli.progress import progress as bar
from barnabas.client.admin.log_dirs import LogDirs
from barnabas.client.client import Client
from barnabas.client.metadata import TopicPartition
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import KafkaError

OnProgress = Callable[[int, int], None]
"""Takes the partitions that have arrived, and the bytes."""


@dataclass(frozen=True, slots=True)
class Copies:
    """The partitions that move, with the brokers that get a copy of each, and its size where it is led."""

    targets: Mapping[TopicPartition, tuple[int, ...]]
    sizes: Mapping[TopicPartition, int]

    def bytes_of(self, partitions: Iterable[TopicPartition]) -> int:
        return sum(self.sizes[partition] * len(self.targets[partition]) for partition in partitions)

    async def copied_bytes(self, client: Client, left: Set[TopicPartition]) -> int:
        """Of all that has arrived, and of what is on its way."""
        wanted: dict[int, list[TopicPartition]] = {}
        for partition in left:
            for broker in self.targets[partition]:
                wanted.setdefault(broker, []).append(partition)
        under_way = await _sizes(client, wanted)
        return self.bytes_of(self.targets.keys() - left) + sum(
            min(size, self.sizes[partition]) for found in under_way for partition, size in found.items()
        )


async def measure(
    client: Client, targets: Mapping[TopicPartition, tuple[int, ...]], leaders: Mapping[TopicPartition, int]
) -> Copies:
    """What these copies come to, as the leaders tell it."""
    wanted: dict[int, list[TopicPartition]] = {}
    for partition in targets:
        wanted.setdefault(leaders[partition], []).append(partition)
    sizes = dict.fromkeys(targets, 0)
    for found in await _sizes(client, wanted):
        sizes.update(found)
    return Copies(targets, sizes)


async def _sizes(client: Client, wanted: Mapping[int, list[TopicPartition]]) -> list[dict[TopicPartition, int]]:
    """What brokers have of these partitions; one that does not answer has nothing, as far as can be told."""

    async def ask(broker: int, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        try:
            return await LogDirs(client).replica_bytes(broker, partitions)
        except KafkaError:
            return {}

    return await asyncio.gather(*(ask(broker, partitions) for broker, partitions in wanted.items()))


@contextmanager
def progress(copies: Copies) -> Iterator[OnProgress]:
    """Tell on standard error how far it is: a bar on a terminal, else a line for each partition that arrives."""
    total, last = len(copies.targets), -1
    with bar("moving partitions", copies.bytes_of(copies.targets), Unit.BYTES) as on_bar:

        def tell(partitions: int, copied: int) -> None:
            nonlocal last
            if sys.stderr.isatty():
                on_bar(copied, f"moving partitions {partitions}/{total}")
            elif partitions != last:
                print(f"{partitions} of {total} partitions moved", file=sys.stderr, flush=True)
            last = partitions

        yield tell
