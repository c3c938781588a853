"""Where a read begins and ends: as Spark writes it, and as offsets that a cluster answers for.

Spark's JSON is `{"topic": {"0": 23, "1": -2}}`, where -1 is the latest offset and -2 the earliest; by timestamp the
numbers are milliseconds since 1970.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from barnabas.client.client import Client
from barnabas.client.list_offsets import EARLIEST, LATEST, Isolation, list_offsets
from barnabas.client.metadata import TopicPartition
from barnabas.client.options import WrongOption

Offsets: TypeAlias = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Earliest:
    pass


@dataclass(frozen=True, slots=True)
class Latest:
    pass


@dataclass(frozen=True)
class AtOffsets:
    """One per partition that is read; LATEST and EARLIEST stand for what the cluster says."""

    offsets: Offsets
    option: str = "startingOffsets"


@dataclass(frozen=True)
class AtTimes:
    """The first record at or after a time: one for all partitions, or one for each."""

    times: int | Offsets
    option: str = "startingTimestamp"
    or_latest: bool = False
    """Where no record is that young, go by the end of the partition instead of raising an error."""


Limit: TypeAlias = Earliest | Latest | AtOffsets | AtTimes


def parse_offsets(option: str, text: str, lowest: int = EARLIEST) -> dict[TopicPartition, int]:
    """Numbers per partition from Spark's JSON."""
    problem = WrongOption(
        f'{option}={text!r} is not of the form {{"topic": {{"0": 23}}}} with numbers from {lowest} on'
    )
    try:
        topics = json.loads(text)
    except ValueError:
        raise problem from None
    if not isinstance(topics, dict) or not all(isinstance(partitions, dict) for partitions in topics.values()):
        raise problem
    offsets = {}
    for topic, partitions in topics.items():
        for partition, offset in partitions.items():
            if not partition.isdecimal() or type(offset) is not int or offset < lowest:
                raise problem
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def nested(offsets: Offsets) -> dict[str, dict[str, int]]:
    """The form that Spark's JSON has."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return topics


def unnested(topics: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in topics.items()
        for partition, offset in partitions.items()
    }


async def resolve_limit(
    client: Client, partitions: Iterable[TopicPartition], limit: Limit, isolation: Isolation
) -> dict[TopicPartition, int]:
    """The offset of a limit in each partition."""
    wanted = list(partitions)
    match limit:
        case Earliest():
            return await _ask(client, dict.fromkeys(wanted, EARLIEST), isolation)
        case Latest():
            return await _ask(client, dict.fromkeys(wanted, LATEST), isolation)
        case AtOffsets(offsets, option):
            _check_complete(option, offsets, wanted)
            asked = {partition: offset for partition, offset in offsets.items() if offset < 0}
            return {**offsets, **await _ask(client, asked, isolation)}
    if not isinstance(limit.times, int):
        _check_complete(limit.option, limit.times, wanted)
    times = dict.fromkeys(wanted, limit.times) if isinstance(limit.times, int) else dict(limit.times)
    found = await _ask(client, times, isolation)
    none = [partition for partition, offset in found.items() if offset < 0]
    if none and not limit.or_latest:
        raise WrongOption(
            f"{limit.option}: {none[0]} has no record at or after {times[none[0]]}; "
            "set startingOffsetsByTimestampStrategy=latest to begin at its end"
        )
    return {**found, **await _ask(client, dict.fromkeys(none, LATEST), isolation)}


def _check_complete(option: str, given: Offsets, wanted: list[TopicPartition]) -> None:
    """Spark wants to be told of every partition, and of no other."""
    for partition in sorted(set(wanted) - given.keys()):
        raise WrongOption(f"{option} says nothing of {partition}; it must name every partition that is read")
    for partition in sorted(given.keys() - set(wanted)):
        raise WrongOption(f"{option} names {partition}, which is not read")


async def _ask(client: Client, times: Offsets, isolation: Isolation) -> dict[TopicPartition, int]:
    if not times:
        return {}
    found = await list_offsets(client, times, isolation)
    return {partition: answer.offset for partition, answer in found.items()}
