"""The metadata records against the two judges that Apache Kafka ships: its schemas, and the tool that reads its log."""

from __future__ import annotations

import base64
import functools
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from barnabas.cluster import records as r
from barnabas.core.ids import uuid_text
from barnabas.records.builder import BatchBuilder
from barnabas.wire.compiler import codec
from barnabas.wire.primitives import DecodeError, encode_uvarint
from barnabas.wire.schema import Field, Versions, bytes_, schema_of, table_of, uuid
from tests import peers
from tests.wire_oracles.messages import for_all, full, versions
from tests.wire_oracles.test_wire_schemas import Line, kafka_lines

NOT_HERE = {
    "DelegationTokenRecord",
    "RemoveDelegationTokenRecord",
    "RegisterControllerRecord",
    "ZkMigrationStateRecord",
}


@functools.cache
def kafka_schemas() -> dict[int, dict[str, Any]]:
    found = {}
    with zipfile.ZipFile(next(peers.kafka_jars().glob("kafka-metadata-4*.jar"))) as jar:
        for name in jar.namelist():
            if re.fullmatch(r"common/metadata/\w+\.json", name):
                schema = json.loads(re.sub(r"(?m)^\s*//.*$", "", jar.read(name).decode()))
                found[schema["apiKey"]] = schema
    return found


def our_lines(cls: type, version: int) -> list[Line]:
    lines = []
    for field in table_of(cls):
        if field.versions.has(version):
            element = field.of or field.kind
            is_struct = isinstance(element, type)
            name = element.__name__ if isinstance(element, type) else element.name
            lines.append(
                Line(
                    field.name,
                    f"[]{name}" if field.is_array else name,
                    field.nullable.has(version),
                    name if isinstance(field.default, type) else field.default,
                    field.tag if field.tagged.has(version) else None,
                    our_lines(element, version) if is_struct else [],  # type: ignore[arg-type]
                )
            )
    return lines


@pytest.mark.parametrize(("key", "record"), r.KEYS.items(), ids=[cls.__name__ for cls in r.KEYS.values()])
def test_every_field_of_every_version_is_kafkas(key: int, record: type) -> None:
    theirs = kafka_schemas()[key]
    assert record.__name__ == theirs["name"]
    assert schema_of(record).versions == Versions.parse(theirs["validVersions"])
    assert schema_of(record).flexible == Versions.parse(theirs["flexibleVersions"])
    for version in versions(record):
        assert our_lines(record, version) == kafka_lines(theirs["fields"], {}, version), f"version {version}"


def test_only_records_of_what_barnabas_does_not_have_are_left_out() -> None:
    assert {schema["name"] for key, schema in kafka_schemas().items() if key not in r.KEYS} == NOT_HERE


@pytest.mark.parametrize("record", r.KEYS.values(), ids=lambda cls: cls.__name__)
def test_a_record_comes_back_from_its_frame(record: type) -> None:
    newest = versions(record)[-1]

    def check(sent: Any) -> None:
        assert r.decode(r.encode(sent)) == sent

    check(full(record, newest))
    for_all(record, newest, check)


def framed(key: int, record: Any, version: int) -> bytes:
    frame = b"".join(encode_uvarint(part) for part in (r.FRAME_VERSION, key, version))
    return b"".join((frame, *codec(type(record), version).encode(record)))


def as_json(record: Any, version: int) -> dict[str, Any]:
    """The record as Kafka's tools print it."""

    def value(field: Field, found: Any) -> Any:
        element = field.of or field.kind
        if field.is_array:
            return [one(element, item) for item in found]
        return one(element, found)

    def one(element: Any, found: Any) -> Any:
        if isinstance(element, type):
            return as_json(found, version)
        if element is uuid:
            return uuid_text(found)
        return base64.b64encode(found).decode() if element is bytes_ else found

    def camel(name: str) -> str:
        first, *others = name.split("_")
        return first + "".join(other.capitalize() for other in others)

    return {
        camel(field.name): value(field, getattr(record, field.name))
        for field in table_of(type(record))
        if field.versions.has(version)
    }


@pytest.mark.peers
def test_kafkas_own_tool_reads_every_version_of_every_record(tmp_path: Path) -> None:
    sent = [(key, full(cls, version), version) for key, cls in r.KEYS.items() for version in versions(cls)]
    batch = BatchBuilder()
    for key, record, version in sent:
        batch.append(None, framed(key, record, version), timestamp_ms=0)
    segment = tmp_path / f"{0:020}.log"
    segment.write_bytes(batch.build(leader_epoch=0))
    printed = peers.kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", str(segment)
    )
    payloads = [json.loads(payload) for payload in re.findall(r"payload: (\{.*\})", printed)]
    assert [(payload["version"], payload["data"]) for payload in payloads] == [
        (version, as_json(record, version)) for _, record, version in sent
    ]


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        (b"\x02\x02\x00", "frame version 2"),
        (b"\x01\x63\x00", "key 99"),
        (b"\x01\x02\x05", "version 5 is not known here; it was written by a later version"),
        (r.encode(r.NoOpRecord()) + b"\x00", "NoOpRecord has 1 bytes too many"),
    ],
)
def test_a_record_from_the_future_or_of_the_wrong_length_is_refused_by_name(frame: bytes, problem: str) -> None:
    with pytest.raises(DecodeError, match=problem):
        r.decode(frame)


def test_every_truncation_is_a_decode_error() -> None:
    whole = r.encode(full(r.RegisterBrokerRecord, 4))
    for size in range(len(whole)):
        with pytest.raises(DecodeError):
            r.decode(whole[:size])
