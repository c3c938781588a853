"""The options of reading, by the names of Spark's own Kafka source, checked before anything is read."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from barnabas.client.list_offsets import EARLIEST, LATEST, Isolation
from barnabas.client.metadata import TopicPartition
from barnabas.client.options import WrongOption
from barnabas.spark.decoding import Decoding
from barnabas.spark.kafka_options import CONSUMER, KafkaOptions, is_kafka_option, parse_kafka_options
from barnabas.spark.offsets import AtOffsets, AtTimes, Earliest, Latest, Limit, parse_offsets
from barnabas.spark.option_values import (
    Parse,
    boolean,
    check_known,
    milliseconds,
    number,
    one_of,
    parse_all,
    text,
    words,
    wrong,
)
from barnabas.spark.schema import ALL_COLUMNS, CORRUPT, PLAIN_COLUMNS, known_columns
from barnabas.spark.value_fields import VALUE_OPTIONS, ValueFields, parse_value_fields

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Subscribe:
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    pattern: str


@dataclass(frozen=True, slots=True)
class Assign:
    partitions: tuple[TopicPartition, ...]


Topics: TypeAlias = Subscribe | SubscribePattern | Assign


@dataclass(frozen=True)
class ReadOptions:
    kafka: KafkaOptions
    topics: Topics
    starting: Limit
    ending: Limit
    """Of a batch; a stream has no end."""
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    push_filters: bool
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    group: str | None
    group_prefix: str
    poll_timeout_ms: int
    decoding: Decoding | None = None
    """How tasks decode values for a pipeline."""
    fields: ValueFields | None = None
    """Into which columns tasks decode values."""

    @property
    def isolation(self) -> Isolation:
        return Isolation(self.kafka.settings.get("isolation_level", Isolation.READ_UNCOMMITTED))


def _assigned(option: str, given: str) -> Assign:
    right = 'of the form {"topic": [0, 1]}'
    try:
        topics = json.loads(given)
        partitions = tuple({TopicPartition(topic, index): None for topic, some in topics.items() for index in some})
    except (ValueError, AttributeError, TypeError):
        raise wrong(option, given, right) from None
    if not partitions or not all(type(partition.partition) is int for partition in partitions):
        raise wrong(option, given, right)
    return Assign(partitions)


def _pattern(option: str, given: str) -> SubscribePattern:
    try:
        re.compile(given)
    except re.error as error:
        raise wrong(option, given, f"a regular expression: {error}") from None
    return SubscribePattern(given)


def _limit(option: str, given: str) -> Limit:
    names: dict[str, Limit] = {"earliest": Earliest(), "latest": Latest()}
    return names.get(given.strip().lower()) or AtOffsets(parse_offsets(option, given), option)


def _columns(known: Sequence[str]) -> Parse[tuple[str, ...]]:
    def parse(option: str, given: str) -> tuple[str, ...]:
        chosen = words(option, given)
        check_known(chosen, known, "column")
        right = {name.lower(): name for name in known}
        return tuple(right[name.lower()] for name in chosen)

    return parse


def _times(option: str, given: str) -> dict[TopicPartition, int]:
    return parse_offsets(option, given, lowest=0)


def _decoding(option: str, given: str) -> Decoding:
    try:
        return Decoding.load(given)
    except (ValueError, KeyError, TypeError) as problem:
        raise wrong(option, given, f"what a pipeline writes there: {problem}") from None


_TOPICS: Mapping[str, Parse[Topics]] = {
    "subscribe": lambda option, given: Subscribe(words(option, given)),
    "subscribePattern": _pattern,
    "assign": _assigned,
}
_STREAMING: Mapping[str, Parse[Any]] = {
    "maxOffsetsPerTrigger": number(1),
    "minOffsetsPerTrigger": number(1),
    "maxTriggerDelay": milliseconds,
}
_ENDING: Mapping[str, Parse[Any]] = {
    "endingOffsets": _limit,
    "endingOffsetsByTimestamp": _times,
    "endingTimestamp": number(0),
}
_OPTIONS: Mapping[str, Parse[Any]] = {
    **_TOPICS,
    **_STREAMING,
    **_ENDING,
    "startingOffsets": _limit,
    "startingOffsetsByTimestamp": _times,
    "startingTimestamp": number(0),
    "startingOffsetsByTimestampStrategy": one_of({"error": False, "latest": True}),
    "failOnDataLoss": boolean,
    "minPartitions": number(1),
    "maxRecordsPerPartition": number(1),
    "includeHeaders": boolean,
    "columns": text,
    **VALUE_OPTIONS,
    "pushFilters": boolean,
    "groupIdPrefix": text,
    "kafkaConsumer.pollTimeoutMs": number(1),
    "decoding": _decoding,
    "fetchOffset.numRetries": number(0),
    "fetchOffset.retryIntervalMs": number(0),
}
"""`decoding` is for pipelines. The last two are taken for the sake of Spark's own source: our client has a time for
retries, not a number."""


def parse_columns(options: Mapping[str, str], fields: ValueFields | None = None) -> tuple[str, ...]:
    """The columns of the read: those that `columns` names, else all, headers only where they are asked for.

    Where values are decoded, their fields take the place of the value.
    """
    chosen = parse_all(options, {"includeHeaders": boolean})
    columns: tuple[str, ...] = ALL_COLUMNS if chosen.get("includeHeaders") else PLAIN_COLUMNS
    if fields is not None:
        columns = (*(name for name in columns if name != "value"), *fields.schema.fieldNames(), CORRUPT)
    return named_columns(options, fields) or columns


def named_columns(options: Mapping[str, str], fields: ValueFields | None = None) -> tuple[str, ...] | None:
    """Those that `columns` names, if it is given."""
    known = known_columns(None if fields is None else fields.schema)
    return parse_all(options, {"columns": _columns(known)}).get("columns")


def parse_decoding(options: Mapping[str, str]) -> Decoding | None:
    """How tasks decode values, where they are to."""
    return parse_all(options, {"decoding": _decoding}).get("decoding")


def parse_batch_options(options: Mapping[str, str]) -> ReadOptions:
    given = _parse(options)
    for name in _STREAMING.keys() & given.keys():
        log.warning("option %s has no effect on a batch read", name)
    read = _read_options(options, given, Earliest())
    if isinstance(read.starting, Latest):
        raise WrongOption("startingOffsets='latest' is wrong: a batch read that begins at the end reads nothing")
    if isinstance(read.ending, Earliest):
        raise WrongOption("endingOffsets='earliest' is wrong: a batch read that ends at the beginning reads nothing")
    for name, limit, barred in (("startingOffsets", read.starting, LATEST), ("endingOffsets", read.ending, EARLIEST)):
        if isinstance(limit, AtOffsets) and barred in limit.offsets.values():
            raise WrongOption(f"{name} may not have the offset {barred} in a batch read")
    return read


def parse_stream_options(options: Mapping[str, str]) -> ReadOptions:
    given = _parse(options)
    for name in _ENDING.keys() & given.keys():
        raise WrongOption(f"{name} is for batch reads; a stream has no end")
    read = _read_options(options, given, Latest())
    highest = read.max_offsets_per_trigger
    if highest is not None and (read.min_offsets_per_trigger or 0) > highest:
        raise WrongOption(
            f"minOffsetsPerTrigger={read.min_offsets_per_trigger} is larger than maxOffsetsPerTrigger={highest}"
        )
    return read


def _parse(options: Mapping[str, str]) -> dict[str, Any]:
    check_known([name for name in options if not is_kafka_option(name)], _OPTIONS)
    return parse_all(options, _OPTIONS)


def _read_options(options: Mapping[str, str], given: Mapping[str, Any], begin: Limit) -> ReadOptions:
    choices = [given[name] for name in _TOPICS if name in given]
    if len(choices) != 1:
        raise WrongOption(f"give one of {', '.join(_TOPICS)}, which say what to read; {len(choices)} are given")
    kafka = parse_kafka_options(options, CONSUMER)
    fields = parse_value_fields(options)
    named_columns(options, fields)
    return ReadOptions(
        kafka=kafka,
        topics=choices[0],
        starting=_limit_of(given, "starting", begin, or_latest=given.get("startingOffsetsByTimestampStrategy", False)),
        ending=_limit_of(given, "ending", Latest(), or_latest=True),
        fail_on_data_loss=given.get("failOnDataLoss", True),
        min_partitions=given.get("minPartitions"),
        max_records_per_partition=given.get("maxRecordsPerPartition"),
        push_filters=given.get("pushFilters", False),
        max_offsets_per_trigger=given.get("maxOffsetsPerTrigger"),
        min_offsets_per_trigger=given.get("minOffsetsPerTrigger"),
        max_trigger_delay_ms=given.get("maxTriggerDelay", 15 * 60_000),
        group=kafka.settings.get("group"),
        group_prefix=given.get("groupIdPrefix", "spark-barnabas-source"),
        poll_timeout_ms=given.get("kafkaConsumer.pollTimeoutMs", 120_000),
        decoding=given.get("decoding"),
        fields=fields,
    )


def _limit_of(given: Mapping[str, Any], edge: str, default: Limit, *, or_latest: bool) -> Limit:
    """A time for all goes before times of each partition, and these before offsets."""
    for option in (f"{edge}Timestamp", f"{edge}OffsetsByTimestamp"):
        if option in given:
            return AtTimes(given[option], option, or_latest)
    limit: Limit = given.get(f"{edge}Offsets", default)
    return limit
