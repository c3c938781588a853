"""`barnabas config` on both clusters, judged by Kafka's own tool and by confluent-kafka."""

from __future__ import annotations

import json

import confluent_kafka.admin
import pytest

from tests.cli.commands import Ok, Run, assert_one_line, run_barnabas, run_on, succeed_on
from tests.peers import eventually, kafka_tool


@pytest.fixture
def run(cluster: str) -> Run:
    return run_on(cluster)


@pytest.fixture
def ok(cluster: str) -> Ok:
    return succeed_on(cluster)


def settings(ok: Ok, *arguments: str) -> dict[str, tuple[str, str]]:
    rows = json.loads(ok("config", "describe", *arguments, "-o", "json"))
    return {row["key"]: (row["value"], row["source"]) for row in rows}


def own_settings(ok: Ok, topic: str) -> dict[str, str]:
    return {key: value for key, (value, source) in settings(ok, "topic", topic).items() if source == "topic"}


def test_a_topics_settings_are_set_described_and_unset(cluster: str, ok: Ok, topic_name: str) -> None:
    ok("topic", "create", topic_name, "-p", "1", "-c", "segment.bytes=2000000")
    told = ok("config", "set", "topic", topic_name, "retention.ms=5000000", "cleanup.policy=compact,delete")
    assert told.splitlines() == [
        f"topic {topic_name}: set retention.ms=5000000",
        f"topic {topic_name}: set cleanup.policy=compact,delete",
    ]
    expected = {"cleanup.policy": "compact,delete", "retention.ms": "5000000", "segment.bytes": "2000000"}
    eventually(lambda: own_settings(ok, topic_name), expected)
    judged = kafka_tool(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", cluster, "--describe", "--entity-type", "topics", "--entity-name", topic_name),
    )
    assert "retention.ms=5000000 " in judged
    assert "cleanup.policy=compact,delete " in judged

    ok("config", "unset", "topic", topic_name, "retention.ms", "cleanup.policy")
    eventually(lambda: own_settings(ok, topic_name), {"segment.bytes": "2000000"})
    assert settings(ok, "topic", topic_name, "-k", "retention.ms") == {"retention.ms": ("604800000", "default")}
    assert len(settings(ok, "topic", topic_name, "--all")) > 20


def test_settings_of_one_broker_and_of_all_brokers(cluster: str, ok: Ok) -> None:
    """One that no other test on the same broker is sensitive to."""
    key = "log.retention.ms"
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster})
    broker = str(json.loads(ok("cluster", "describe", "-o", "json"))["brokers"][0]["broker"])

    def judged() -> str:
        resource = confluent_kafka.admin.ConfigResource("broker", broker)
        return str(admin.describe_configs([resource])[resource].result(60)[key].value)

    before = judged()
    ok("config", "set", "broker", "all", f"{key}=700000000000")
    eventually(judged, "700000000000")
    assert settings(ok, "broker", "all")[key][1] == "cluster"
    ok("config", "set", "broker", broker, f"{key}=800000000000")
    eventually(judged, "800000000000")
    assert settings(ok, "broker", broker, "-k", key)[key][1] == "broker"
    ok("config", "unset", "broker", broker, key)
    eventually(judged, "700000000000")
    ok("config", "unset", "broker", "all", key)
    eventually(judged, before)


def test_wrong_resources_keys_and_values_are_one_line(run: Run, ok: Ok, topic_name: str) -> None:
    assert_one_line(run("config", "describe", "topic", topic_name), topic_name)
    ok("topic", "create", topic_name, "-p", "1")
    assert_one_line(run("config", "set", "topic", topic_name, "no.such.key=1"), "no.such.key")
    assert_one_line(run("config", "set", "topic", topic_name, "retention.ms=soon"), "retention.ms")
    assert_one_line(run("config", "describe", "topic", topic_name, "-k", "no.such.key"), "no setting 'no.such.key'")
    assert_one_line(run("config", "describe", "broker", "77"), "broker 77")


@pytest.mark.parametrize("arguments", [["describe", "broker", "first"], ["set", "topic", "orders", "retention.ms"]])
def test_a_broker_without_id_or_a_key_without_value_is_an_error_of_usage(arguments: list[str]) -> None:
    assert run_barnabas("config", *arguments).returncode == 2
