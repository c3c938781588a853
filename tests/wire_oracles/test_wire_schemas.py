"""Every table, version by version and field by field, against the schemas that Apache Kafka ships in its jar."""

from __future__ import annotations

import functools
import json
import re
import zipfile
from typing import Any, NamedTuple

import pytest

from barnabas.wire.registry import API_KEYS, NEVER, Api, snake_case
from barnabas.wire.schema import ZERO_UUID, Kind, Versions, schema_of, table_of
from tests import peers

# Where Kafka has one name for different structs of a request and its response, the tables put the role in front.
QUALIFIED = {49: {"EntryData"}, 55: {"TopicData", "PartitionData"}, 56: {"TopicData", "PartitionData"}}


class Line(NamedTuple):
    """What a field is in one version; `inner` are the lines of its struct."""

    name: str
    type: str
    nullable: bool
    default: Any
    tag: int | None
    inner: list[Line]


@functools.cache
def kafka_schemas() -> dict[tuple[int, str], dict[str, Any]]:
    found = {}
    with zipfile.ZipFile(next(peers.kafka_jars().glob("kafka-clients-*.jar"))) as jar:
        for name in jar.namelist():
            if re.fullmatch(r"common/message/\w+(Request|Response)\.json", name):
                schema = json.loads(re.sub(r"(?m)^\s*//.*$", "", jar.read(name).decode()))
                found[schema["apiKey"], schema["type"]] = schema
    return found


def stable_versions(key: int) -> Versions:
    """The versions of an API without one that Kafka calls unstable, which only the request tells."""
    schema = kafka_schemas()[key, "request"]
    lowest, highest = Versions.parse(schema["validVersions"])
    return Versions(lowest, highest - 1 if schema.get("latestVersionUnstable") else highest)


def kafka_lines(fields: list[dict[str, Any]], common: dict[str, Any], version: int) -> list[Line]:
    lines = []
    for field in fields:
        if Versions.parse(field["versions"]).has(version):
            element = field["type"].removeprefix("[]")
            inner = field.get("fields") or common.get(element, [])
            lines.append(
                Line(
                    snake_case(field["name"]),
                    field["type"],
                    Versions.parse(field.get("nullableVersions", "none")).has(version),
                    kafka_default(field["type"], field.get("default", "")),
                    field["tag"] if Versions.parse(field.get("taggedVersions", "none")).has(version) else None,
                    kafka_lines(inner, common, version),
                )
            )
    return lines


def kafka_default(type_name: str, text: Any) -> Any:
    text = str(text)
    if text == "null" or (type_name == "records" and not text):
        return None
    if type_name.startswith("[]"):
        return []
    if type_name[0].isupper():
        return type_name
    match type_name:
        case "string":
            return text
        case "bytes":
            return b""
        case "uuid":
            return ZERO_UUID
        case "bool":
            return text.lower() == "true"
        case "float64":
            return float(text or 0)
        case _:
            return int(text or "0", 0)


def table_lines(cls: type, version: int) -> list[Line]:
    lines = []
    for field in table_of(cls):
        if field.versions.has(version):
            element = field.kind if field.of is None else field.of
            is_struct = not isinstance(element, Kind)
            name = kafka_name(cls, element) if isinstance(element, type) else element.name
            lines.append(
                Line(
                    field.name,
                    f"[]{name}" if field.is_array else name,
                    field.nullable.has(version),
                    name if isinstance(field.default, type) else field.default,
                    field.tag if field.tagged.has(version) else None,
                    table_lines(element, version) if is_struct else [],  # type: ignore[arg-type]
                )
            )
    return lines


def kafka_name(owner: type, element: type) -> str:
    key = int(owner.__module__.rpartition(".")[2][1:3])
    return next((name for name in QUALIFIED.get(key, ()) if element.__name__.endswith(name)), element.__name__)


@pytest.mark.parametrize("api", API_KEYS.values(), ids=lambda api: api.stem)
@pytest.mark.parametrize("role", ["request", "response"])
def test_every_field_of_every_version_is_kafkas(api: Api, role: str) -> None:
    theirs = kafka_schemas()[api.key, role]
    message = getattr(api, role)
    ours = schema_of(message)
    assert (message.__name__, ours.role, ours.key) == (theirs["name"], role, api.key)
    assert ours.versions == stable_versions(api.key)
    assert ours.flexible == Versions.parse(theirs["flexibleVersions"])
    common = {struct["name"]: struct["fields"] for struct in theirs.get("commonStructs", [])}
    for version in range(ours.versions.lowest, ours.versions.highest + 1):
        assert table_lines(message, version) == kafka_lines(theirs["fields"], common, version), f"version {version}"


@pytest.mark.parametrize("api", API_KEYS.values(), ids=lambda api: api.stem)
def test_the_registry_says_what_the_tables_say(api: Api) -> None:
    for message in (api.request, api.response):
        schema = schema_of(message)
        assert schema.versions == (api.min_version, api.max_version)
        flexible_since = schema.flexible.lowest if schema.flexible.has(schema.flexible.lowest) else NEVER
        assert flexible_since == api.flexible_since


def test_no_api_that_a_kafka_4_client_starts_with_is_missing() -> None:
    core = {0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 17, 18, 22, 36}
    assert core <= set(API_KEYS)
