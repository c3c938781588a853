"""Apache Kafka judges the tables: it prints a reference of all its keys, with types, defaults and ranges."""

from __future__ import annotations

import html
import re
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from barnabas.core.broker_keys import BROKER_KEYS
from barnabas.core.config import ConfigKey
from barnabas.core.ids import parse_uuid, random_uuid, uuid_text
from barnabas.core.properties import parse, render
from barnabas.core.topic_keys import TOPIC_KEYS
from tests.peers import kafka_tool

pytestmark = pytest.mark.peers

OTHER_DEFAULTS = {  # see the comments in the table
    "broker.id",
    "listeners",
    "log.dir",
    "queued.max.request.bytes",
    "replica.lag.time.max.ms",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
}
OTHER_UPDATE_MODES = {"listeners", "listener.security.protocol.map"}  # ours are opened once, at the start
STRICTER = {  # Kafka lets these through here and fails, or means nothing, later
    "group.consumer.assignors",
    "group.consumer.migration.policy",
    "broker.heartbeat.interval.ms",
    "broker.id",
    "broker.session.timeout.ms",
    "default.replication.factor",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.flush.interval.ms",
    "log.flush.scheduler.interval.ms",
    "log.retention.hours",
    "log.retention.minutes",
    "log.retention.ms",
    "log.roll.jitter.ms",
    "log.roll.ms",
    "queued.max.request.bytes",
    "num.replica.fetchers",
    "replica.fetch.min.bytes",
    "replica.fetch.wait.max.ms",
    "replica.high.watermark.checkpoint.interval.ms",
    "replica.lag.time.max.ms",
    "replica.selector.class",
    "replica.socket.timeout.ms",
    "security.inter.broker.protocol",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
    # it says in words what an item must look like
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    # served only when switched off
    "alter.config.policy.class.name",
    "authorizer.class.name",
    "create.topic.policy.class.name",
}


class Documented(NamedTuple):
    type: str
    default: str | None
    allowed: str
    server_default: str | None
    update: str | None


@cache
def documented(main_class: str) -> dict[str, Documented]:
    keys = {}
    for section in kafka_tool(main_class).split("<h4>")[1:]:
        name = re.findall(r'href="[^"]*">([^<]+)</a>', section)[0]
        rows = {k: html.unescape(v) for k, v in re.findall(r"<th>([^<]+):</th><td>(.*?)</td>", section)}
        default = re.sub(r" \(.*\)$", "", rows["Default"]).strip('"')  # without "(7 days)"
        keys[name] = Documented(
            rows["Type"],
            None if default == "null" else default,
            rows["Valid Values"],
            rows.get("Server Default Property"),
            rows.get("Update Mode"),
        )
    return keys


def broker_documentation() -> dict[str, Documented]:
    return documented("kafka.server.KafkaConfig")


def topic_documentation() -> dict[str, Documented]:
    return documented("org.apache.kafka.storage.internals.log.LogConfig")


def allowed(key: ConfigKey) -> str:
    """The range as Kafka writes it; choices in alphabetical order."""
    if key.choices:
        return ",".join(sorted(key.choices))
    low, high = key.minimum, key.maximum
    if low is None:
        return ""
    return f"[{low:.0f},...{f',{high:.0f}' if high is not None else ''}]" + "".join(f" or {also}" for also in key.also)


def in_order(allowed: str) -> str:
    is_choice = re.fullmatch(r"\[([A-Za-z]\w*(?:, \w+)*)\]", allowed)
    return ",".join(sorted(is_choice[1].split(", "))) if is_choice else allowed


def test_every_key_that_kafka_documents_is_known() -> None:
    assert broker_documentation().keys() <= BROKER_KEYS.keys.keys() | BROKER_KEYS.ignored.keys()
    assert topic_documentation().keys() <= TOPIC_KEYS.keys.keys() | TOPIC_KEYS.ignored.keys()


def test_broker_keys_have_kafka_s_types_defaults_ranges_and_update_modes() -> None:
    for name, theirs in broker_documentation().items():
        if name not in BROKER_KEYS:
            continue
        ours = BROKER_KEYS[name]
        assert ours.type.name.lower() == theirs.type, name
        if name not in OTHER_DEFAULTS:
            assert (ours.render(ours.default) or "") == (theirs.default or ""), name
        if name not in STRICTER:
            assert allowed(ours) == in_order(theirs.allowed), name
        if name not in OTHER_UPDATE_MODES:
            assert ours.update == theirs.update, name


def test_topic_keys_have_kafka_s_types_defaults_ranges_and_synonyms() -> None:
    for name, theirs in topic_documentation().items():
        if name not in TOPIC_KEYS:
            continue
        ours = TOPIC_KEYS[name]
        assert ours.type.name.lower() == theirs.type, name
        assert ours.render(ours.default) == theirs.default, name
        if name not in STRICTER:
            assert allowed(ours) == in_order(theirs.allowed), name
        if theirs.server_default != "null":
            assert ours.synonyms[0].name == theirs.server_default, name


def test_kafka_finds_the_same_directories_in_a_properties_file(tmp_path: Path) -> None:
    """Its storage tool names the directories that are not there, so every escape ends up in what it prints."""
    value = rf"""{tmp_path}/a\u0041,\
        {tmp_path}/b\=c\:d,   {tmp_path}/\z\\e,\
   # {tmp_path}/f!"""
    text = f"! a comment\\\nprocess.roles : broker\nnode.id 1\nlog.dirs\\\n = {value}\n" + render(
        {
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "2@127.0.0.1:9",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }
    )
    file = tmp_path / "server.properties"
    file.write_text(text)
    ours = {name: value for name, value, _ in parse(text, "f")}
    directories = [directory.strip() for directory in ours["log.dirs"].split(",")]
    assert len(directories) == 4
    said = storage_info(file)
    for directory in directories:
        assert f"{directory} does not exist" in said


def storage_info(file: Path) -> str:
    try:
        return kafka_tool("kafka.tools.StorageTool", "info", "-c", str(file))
    except AssertionError as problems:  # the tool ends with 1 when it has found something wrong
        return str(problems)


def test_kafka_reads_ids_that_we_make_and_we_read_its(tmp_path: Path) -> None:
    theirs = kafka_tool("kafka.tools.StorageTool", "random-uuid").strip()
    assert uuid_text(parse_uuid(theirs)) == theirs
    cluster_id, directory_id = (uuid_text(random_uuid(Random(seed))) for seed in (1, 2))
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").write_text(
        render({"version": "1", "cluster.id": cluster_id, "node.id": "1", "directory.id": directory_id}, "a comment")
    )
    file = tmp_path / "server.properties"
    file.write_text(
        render(
            {
                "process.roles": "broker",
                "node.id": "1",
                "log.dirs": str(data),
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": "2@127.0.0.1:9",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            }
        )
    )
    said = storage_info(file)
    assert cluster_id in said
    assert directory_id in said
