"""`barnabas bench`: what it says it did, it did."""

from __future__ import annotations

import json

from tests.cli.commands import Ok, Run, assert_one_line


def test_a_load_is_produced_and_consumed_and_its_figures_agree(ok: Ok, topic_name: str) -> None:
    ok("topic", "create", topic_name, "-p", "2")
    produced = json.loads(ok("bench", "produce", topic_name, "-n", "5000", "--size", "200", "-z", "lz4", "-o", "json"))
    assert (produced["records"], produced["mb"]) == (5000, 1.0)
    latency = produced["latency"]
    assert latency["samples"] == 5000
    assert 0 < latency["p50_ms"] <= latency["p95_ms"] <= latency["p99_ms"] <= latency["p99_9_ms"] <= latency["max_ms"]
    partitions = json.loads(ok("topic", "describe", topic_name, "-o", "json"))["partitions"]
    assert sum(partition["end_offset"] for partition in partitions) == 5000

    consumed = json.loads(ok("bench", "consume", topic_name, "-o", "json"))
    assert (consumed["records"], consumed["mb"]) == (5000, 1.0)
    for load in (produced, consumed):
        assert abs(load["records_per_s"] * load["seconds"] / load["records"] - 1) < 0.05
    assert json.loads(ok("bench", "consume", topic_name, "-n", "100", "-o", "json"))["records"] == 100


def test_a_rate_is_kept_and_round_trips_are_timed(ok: Ok, topic_name: str) -> None:
    ok("topic", "create", topic_name, "-p", "2")
    produced = json.loads(ok("bench", "produce", topic_name, "-n", "100", "--rate", "200", "-o", "json"))
    assert produced["seconds"] >= 0.49
    around = json.loads(ok("bench", "latency", topic_name, "-n", "50", "--rate", "100", "-o", "json"))
    assert (around["records"], around["latency"]["samples"]) == (50, 50)
    assert around["latency"]["p50_ms"] > 0
    assert len(ok("bench", "latency", topic_name, "-n", "5").splitlines()) == 6


def test_a_topic_that_is_not_there_is_one_line(run: Run, topic_name: str) -> None:
    for load in ("produce", "consume", "latency"):
        assert_one_line(run("bench", load, topic_name), f"topic '{topic_name}' does not exist; `barnabas topic list`")
