"""Options of reading: those of Spark's own source are understood, what is wrong is told with what would be right."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest

from barnabas.client.list_offsets import EARLIEST, LATEST, Isolation
from barnabas.client.metadata import TopicPartition
from barnabas.client.options import WrongOption
from barnabas.spark.offsets import AtOffsets, AtTimes, Earliest, Latest
from barnabas.spark.options import (
    Assign,
    ReadOptions,
    Subscribe,
    SubscribePattern,
    parse_batch_options,
    parse_columns,
    parse_stream_options,
)
from barnabas.spark.schema import ALL_COLUMNS, PLAIN_COLUMNS

A0 = TopicPartition("a", 0)


def lowered(options: dict[str, str]) -> dict[str, str]:
    """As Spark hands them over."""
    return {name.lower(): value for name, value in options.items()}


def batch(**options: str) -> ReadOptions:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"} | {k.replace("__", "."): v for k, v in options.items()}
    return parse_batch_options(lowered(given))


def stream(**options: str) -> ReadOptions:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"} | {k.replace("__", "."): v for k, v in options.items()}
    return parse_stream_options(lowered(given))


def test_what_is_not_said_is_as_in_sparks_own_source() -> None:
    read = batch()
    assert (read.starting, read.ending, stream().starting) == (Earliest(), Latest(), Latest())
    assert read.topics == Subscribe(("a",))
    assert (read.fail_on_data_loss, read.min_partitions, read.max_records_per_partition) == (True, None, None)
    assert (read.max_offsets_per_trigger, read.min_offsets_per_trigger) == (None, None)
    assert read.max_trigger_delay_ms == 15 * 60_000
    assert read.isolation is Isolation.READ_UNCOMMITTED


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"subscribe": "a, b,a"}, "topics", Subscribe(("a", "b"))),
        ({"startingOffsets": "EARLIEST"}, "starting", Earliest()),
        ({"startingOffsets": '{"a": {"0": -2}}'}, "starting", AtOffsets({A0: EARLIEST}, "startingOffsets")),
        ({"endingOffsets": '{"a": {"0": -1}}'}, "ending", AtOffsets({A0: LATEST}, "endingOffsets")),
        ({"startingTimestamp": "5"}, "starting", AtTimes(5, "startingTimestamp", or_latest=False)),
        (
            {"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "latest"},
            "starting",
            AtTimes(5, "startingTimestamp", or_latest=True),
        ),
        ({"endingTimestamp": "5"}, "ending", AtTimes(5, "endingTimestamp", or_latest=True)),
        (
            {"startingOffsetsByTimestamp": '{"a": {"0": 7}}'},
            "starting",
            AtTimes({A0: 7}, "startingOffsetsByTimestamp", or_latest=False),
        ),
        ({"failOnDataLoss": "FALSE"}, "fail_on_data_loss", False),
        ({"minPartitions": "3"}, "min_partitions", 3),
        ({"maxRecordsPerPartition": "10"}, "max_records_per_partition", 10),
        ({"pushFilters": "true"}, "push_filters", True),
        ({"kafkaConsumer__pollTimeoutMs": "512"}, "poll_timeout_ms", 512),
        ({"kafka__group__id": "g"}, "group", "g"),
        ({"groupIdPrefix": "p"}, "group_prefix", "p"),
        ({"kafka__isolation__level": "read_committed"}, "isolation", Isolation.READ_COMMITTED),
    ],
)
def test_an_option_is_understood(options: dict[str, str], field: str, value: object) -> None:
    assert getattr(batch(**options), field) == value


@pytest.mark.parametrize(
    ("given", "topics"),
    [
        ({"subscribePattern": "a.*"}, SubscribePattern("a.*")),
        ({"assign": '{"a": [0, 2, 0]}'}, Assign((A0, TopicPartition("a", 2)))),
    ],
)
def test_what_to_read_is_said_in_one_of_three_ways(given: dict[str, str], topics: object) -> None:
    assert parse_batch_options(lowered({"kafka.bootstrap.servers": "h:1", **given})).topics == topics


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"maxOffsetsPerTrigger": "10"}, "max_offsets_per_trigger", 10),
        ({"minOffsetsPerTrigger": "10"}, "min_offsets_per_trigger", 10),
        ({"maxTriggerDelay": "90s"}, "max_trigger_delay_ms", 90_000),
        ({"maxTriggerDelay": "2h"}, "max_trigger_delay_ms", 7_200_000),
        ({"maxTriggerDelay": "1500"}, "max_trigger_delay_ms", 1500),
        ({"startingOffsets": "latest"}, "starting", Latest()),
    ],
)
def test_an_option_of_streams_is_understood(options: dict[str, str], field: str, value: object) -> None:
    assert getattr(stream(**options), field) == value


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger"])
def test_options_of_streams_have_no_effect_on_a_batch_and_that_is_told(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    batch(**{name: "10"})
    assert caplog.messages == [f"option {name} has no effect on a batch read"]


def test_kafkas_options_reach_our_client_by_its_names() -> None:
    read = batch(
        kafka__client__id="me",
        kafka__request__timeout__ms="9",
        kafka__fetch__max__bytes="99",
        kafka__check__crcs="false",
    )
    assert read.kafka.bootstrap == "h:1"
    assert read.kafka.settings == {
        "client_id": "me",
        "request_timeout_ms": 9,
        "fetch_max_bytes": 99,
        "check_crcs": False,
    }
    assert read.kafka.client_settings() == {"client_id": "me", "request_timeout_ms": 9}


def test_kafkas_options_that_mean_nothing_here_are_taken() -> None:
    assert batch(kafka__receive__buffer__bytes="9", kafka__security__protocol="PLAINTEXT").kafka.settings == {}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingOffset": "earliest"}, "no option 'startingoffset'; did you mean 'startingOffsets'?"),
        ({"qqq": "1"}, "no option 'qqq'; there are assign, columns,"),
        ({"kafka__fetch__maxbytes": "1"}, "no option 'kafka.fetch.maxbytes'; did you mean 'kafka.fetch.max.bytes'?"),
        ({"kafka__bootstrap__servers": "h:x"}, "kafka.bootstrap.servers='h:x' is wrong: it must be host:port"),
        ({"kafka__key__deserializer": "x"}, "kafka.key.deserializer cannot be set: keys are read as bytes"),
        ({"kafka__auto__offset__reset": "x"}, "kafka.auto.offset.reset cannot be set: set startingOffsets instead"),
        ({"kafka__security__protocol": "SSL"}, "kafka.security.protocol='SSL' is wrong: it must be one of plaintext"),
        ({"kafka__isolation__level": "x"}, "it must be one of read_uncommitted, read_committed"),
        ({"minPartitions": "0"}, "minPartitions='0' is wrong: it must be a whole number from 1 on"),
        ({"minPartitions": "many"}, "minPartitions='many' is wrong: it must be a whole number from 1 on"),
        ({"failOnDataLoss": "1"}, "failOnDataLoss='1' is wrong: it must be true or false"),
        ({"subscribe": " , "}, "subscribe=' , ' is wrong: it must be one or more names"),
        ({"assign": "{}"}, "give one of subscribe, subscribePattern, assign, which say what to read; 2 are given"),
        ({"startingOffsets": "latest"}, "startingOffsets='latest' is wrong: a batch read that begins at the end"),
        ({"endingOffsets": "earliest"}, "endingOffsets='earliest' is wrong: a batch read that ends at the beginning"),
        ({"startingOffsets": '{"a": {"0": -1}}'}, "startingOffsets may not have the offset -1 in a batch read"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, "endingOffsets may not have the offset -2 in a batch read"),
        ({"startingTimestamp": "soon"}, "startingTimestamp='soon' is wrong: it must be a whole number from 0 on"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "it must be one of error, latest"),
        ({"maxTriggerDelay": "soon"}, "it must be a duration such as 500ms, 30s, 15m or 2h"),
        ({"columns": "value,ofset"}, "no column 'ofset'; did you mean 'offset'?"),
    ],
)
def test_what_is_wrong_is_told_with_what_is_right(options: dict[str, str], told: str) -> None:
    if "assign" in options:
        options = {"assign": '{"a": [0]}'}
    with pytest.raises(WrongOption, match=re.escape(told)):
        batch(**options)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"assign": "5"}, "assign='5' is wrong"),
        ({"assign": '{"a": ["0"]}'}, 'it must be of the form {"topic": [0, 1]}'),
        ({"assign": '{"a": []}'}, 'it must be of the form {"topic": [0, 1]}'),
        ({"subscribePattern": "("}, "subscribePattern='(' is wrong: it must be a regular expression"),
        ({}, "give one of subscribe, subscribePattern, assign, which say what to read; 0 are given"),
    ],
)
def test_topics_that_are_wrong_are_told(given: dict[str, str], told: str) -> None:
    with pytest.raises(WrongOption, match=re.escape(told)):
        parse_batch_options(lowered({"kafka.bootstrap.servers": "h:1", **given}))


def test_the_cluster_must_be_named() -> None:
    with pytest.raises(WrongOption, match=r"kafka.bootstrap.servers is missing"):
        parse_batch_options({"subscribe": "a"})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets is for batch reads; a stream has no end"),
        ({"endingTimestamp": "5"}, "endingTimestamp is for batch reads"),
        (
            {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
            "minOffsetsPerTrigger=5 is larger than maxOffsetsPerTrigger=4",
        ),
    ],
)
def test_a_stream_refuses_what_makes_no_sense_for_it(options: dict[str, str], told: str) -> None:
    with pytest.raises(WrongOption, match=re.escape(told)):
        stream(**options)


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({}, PLAIN_COLUMNS),
        ({"includeHeaders": "true"}, ALL_COLUMNS),
        ({"columns": "Offset, timestamptype"}, ("offset", "timestampType")),
        ({"columns": "headers"}, ("headers",)),
    ],
)
def test_the_columns_of_a_read(options: dict[str, str], columns: tuple[str, ...]) -> None:
    assert parse_columns(lowered(options)) == columns


def test_options_travel_to_the_tasks() -> None:
    read: Any = batch(startingOffsets='{"a": {"0": 5}}', kafka__client__id="me")
    assert pickle.loads(pickle.dumps(read)) == read
