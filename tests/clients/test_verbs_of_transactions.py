"""`barnabas txn` on both clusters, with a transaction that a producer of librdkafka holds open."""

from __future__ import annotations

import json

import confluent_kafka
import pytest

from tests.cli.commands import Ok, Run, assert_one_line, run_on, succeed_on


@pytest.fixture
def run(cluster: str) -> Run:
    return run_on(cluster)


@pytest.fixture
def ok(cluster: str) -> Ok:
    return succeed_on(cluster)


@pytest.fixture
def producer(cluster: str, ok: Ok, topic_name: str) -> confluent_kafka.Producer:
    """Has one record in an open transaction; its topic and its transactional id have the same name."""
    ok("topic", "create", topic_name, "-p", "1")
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster, "transactional.id": topic_name, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic_name, b"open")
    assert producer.flush(60) == 0
    return producer


def test_an_open_transaction_is_seen_and_aborted_only_by_force(
    producer: confluent_kafka.Producer, run: Run, ok: Ok, topic_name: str
) -> None:
    listed = {row["transactional_id"]: row for row in json.loads(ok("txn", "list", "-o", "json"))}
    assert listed[topic_name]["state"] == "ongoing"
    described = json.loads(ok("txn", "describe", topic_name, "-o", "json"))
    assert (described["state"], described["partitions"]) == ("ongoing", [f"{topic_name}-0"])
    [writer] = json.loads(ok("txn", "producers", topic_name, "-o", "json"))
    assert (writer["producer_id"], writer["transaction_start_offset"]) == (listed[topic_name]["producer_id"], 0)

    assert ok("txn", "hanging", topic_name) == "(none)\n"
    abort = ("txn", "abort", topic_name, "-p", "0", "--start-offset", "0")
    assert_one_line(run(*abort), f"no hanging transaction of {topic_name}-0 begins at offset 0", "txn producers")
    assert ok("consume", topic_name, "--isolation", "read_committed") == ""
    ok(*abort, "--force")
    [writer] = json.loads(ok("txn", "producers", topic_name, "-o", "json"))
    assert writer["transaction_start_offset"] is None


def test_a_fenced_producer_can_commit_no_more(
    producer: confluent_kafka.Producer, run: Run, ok: Ok, topic_name: str
) -> None:
    assert ok("txn", "fence", topic_name).startswith(f"fenced {topic_name}: its epoch is ")
    with pytest.raises(confluent_kafka.KafkaException, match="_FENCED"):
        producer.commit_transaction(60)
    assert_one_line(run("txn", "describe", f"{topic_name}-x"), f"{topic_name}-x", "`barnabas txn list`")
