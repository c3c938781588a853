"""The records of the internal topics against Apache Kafka's judges: its schemas, and the tool that reads its logs."""

from __future__ import annotations

import functools
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from barnabas.coordinator import group_records as g
from barnabas.coordinator.outcome import CoordinatorRecord
from barnabas.coordinator.records import (
    GROUP_RECORD_TYPES,
    TRANSACTION_RECORD_TYPES,
    RecordType,
    UnknownRecordType,
    decode_group_record,
    decode_transaction_record,
    encode_record,
)
from barnabas.records.builder import BatchBuilder
from barnabas.wire.primitives import DecodeError
from barnabas.wire.schema import Versions, schema_of
from tests import peers
from tests.unit.cluster.test_metadata_records import as_json, our_lines
from tests.wire_oracles.messages import for_all, full, versions
from tests.wire_oracles.test_wire_schemas import kafka_lines

TOPICS = {
    "group": ("kafka-group-coordinator-4*.jar", GROUP_RECORD_TYPES, decode_group_record, "--offsets-decoder"),
    "transaction": (
        "kafka-transaction-coordinator-4*.jar",
        TRANSACTION_RECORD_TYPES,
        decode_transaction_record,
        "--transaction-log-decoder",
    ),
}
EVERY_TYPE = [
    pytest.param(topic, record_type, id=record_type.key.__name__.removesuffix("Key"))
    for topic, (_, types, _, _) in TOPICS.items()
    for record_type in types
]


@functools.cache
def kafka_schemas(topic: str) -> dict[tuple[int, str], dict[str, Any]]:
    def spelled_out(fields: list[dict[str, Any]]) -> None:
        for field in fields:
            field.setdefault("versions", field.get("taggedVersions"))
            if field.get("default", "") is None:  # only the text "null" makes a default of null
                del field["default"]
            spelled_out(field.get("fields", []))

    found = {}
    with zipfile.ZipFile(next(peers.kafka_jars().glob(TOPICS[topic][0]))) as jar:
        for name in jar.namelist():
            if re.fullmatch(r"common/message/\w+(Key|Value)\.json", name):
                schema = json.loads(re.sub(r"(?m)^\s*//.*$", "", jar.read(name).decode()))
                for fields in (schema, *schema.get("commonStructs", [])):
                    spelled_out(fields["fields"])
                found[schema["apiKey"], schema["type"]] = schema
    return found


@pytest.mark.parametrize(("topic", "record_type"), EVERY_TYPE)
@pytest.mark.parametrize("part", ["key", "value"])
def test_every_field_of_every_version_is_kafkas(topic: str, record_type: RecordType, part: str) -> None:
    theirs = kafka_schemas(topic)[record_type.number, f"coordinator-{part}"]
    ours = getattr(record_type, part)
    assert ours.__name__ == theirs["name"]
    assert schema_of(ours).versions == Versions.parse(theirs["validVersions"])
    assert schema_of(ours).flexible == Versions.parse(theirs["flexibleVersions"])
    common = {struct["name"]: struct["fields"] for struct in theirs.get("commonStructs", [])}
    for version in versions(ours):
        assert our_lines(ours, version) == kafka_lines(theirs["fields"], common, version), f"version {version}"


def test_only_records_of_share_and_streams_groups_are_left_out() -> None:
    for topic, (_, types, _, _) in TOPICS.items():
        ours = {record_type.number for record_type in types}
        left_out = {schema["name"] for (number, _), schema in kafka_schemas(topic).items() if number not in ours}
        assert all(name.startswith(("ShareGroup", "StreamsGroup")) for name in left_out)


@pytest.mark.parametrize(("topic", "record_type"), EVERY_TYPE)
def test_a_record_of_any_version_comes_back(topic: str, record_type: RecordType) -> None:
    decode = TOPICS[topic][2]
    key = full(record_type.key, 0)
    for version in versions(record_type.value):

        def check(sent: Any, version: int = version) -> None:
            assert decode(*encode_record(key, sent, version)) == (key, sent)

        check(full(record_type.value, version))
        for_all(record_type.value, version, check)
    assert decode(*encode_record(key, None)) == (key, None)


@pytest.mark.peers
@pytest.mark.parametrize("topic", TOPICS)
def test_kafkas_own_tool_reads_every_version_of_every_record(topic: str, tmp_path: Path) -> None:
    _, types, _, option = TOPICS[topic]
    sent = [
        (record_type, full(record_type.key, 0), full(record_type.value, version), version)
        for record_type in types
        for version in versions(record_type.value)
    ]
    batch = BatchBuilder()
    for _, key, value, version in sent:
        batch.append(*encode_record(key, value, version), timestamp_ms=0)
    segment = tmp_path / f"{0:020}.log"
    segment.write_bytes(batch.build(leader_epoch=0))
    printed = peers.kafka_tool("org.apache.kafka.tools.DumpLogSegments", option, "--files", str(segment))
    found = [tuple(map(json.loads, pair)) for pair in re.findall(r"key: (\{.*\}) payload: (\{.*\})$", printed, re.M)]
    assert found == [
        (
            {"type": str(record_type.number), "data": as_json(key, 0)},
            {"version": str(version), "data": as_json(value, version)},
        )
        for record_type, key, value, version in sent
    ]


def commit() -> CoordinatorRecord:
    return encode_record(g.OffsetCommitKey("group", "topic", 3), g.OffsetCommitValue(offset=7, metadata="note"))


def test_an_offset_is_written_as_version_4_and_a_classic_group_as_version_3() -> None:
    group = encode_record(g.GroupMetadataKey("group"), g.GroupMetadataValue())
    assert group.value is not None
    assert commit().value is not None
    assert (group.value[:2], commit().value[:2]) == (b"\0\3", b"\0\4")  # type: ignore[index]


def test_a_type_of_another_make_is_told_from_damage() -> None:
    with pytest.raises(UnknownRecordType, match="type 11 "):
        decode_group_record(b"\0\x0b\0\1g", b"\0\0")


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        (b"", None, "key of 0 bytes"),
        (b"\0", None, "key of 1 bytes"),
        (commit().key, b"\0", "value of 1 bytes"),
        (commit().key, b"\0\x09\0", "OffsetCommitValue has versions 0-4, not 9"),
        (commit().key + b"\0", None, "OffsetCommitKey v0 has 1 bytes too many"),
        (b"\0\1\xff\xff\0\1t\0\0\0\0", None, "null is not allowed"),
        (b"\0\1\0\2\xff\xfe\0\1t\0\0\0\0", None, "not UTF-8"),
    ],
)
def test_damage_is_an_error_that_says_what_is_wrong(key: bytes, value: bytes | None, problem: str) -> None:
    with pytest.raises(DecodeError, match=problem):
        decode_group_record(key, value)


def test_every_truncation_is_a_decode_error() -> None:
    key, value = commit()
    assert value is not None
    for size in range(len(value)):
        with pytest.raises(DecodeError):
            decode_group_record(key, value[:size])


def test_a_key_and_a_value_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(TypeError, match="OffsetCommitKey goes with OffsetCommitValue, not GroupMetadataValue"):
        encode_record(g.OffsetCommitKey(), g.GroupMetadataValue())
