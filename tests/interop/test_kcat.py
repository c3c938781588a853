"""kcat (librdkafka 2.0): what a person at a shell does with a topic."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable

import pytest

from tests import peers
from tests.peers import Broker, NewTopic

Kcat = Callable[..., str]


@pytest.fixture
def kcat(broker: Broker) -> Kcat:
    """Runs kcat against the broker and gives its output; a failure of kcat fails the test."""

    def run(*arguments: str, input: str | None = None) -> str:
        done = subprocess.run(
            [peers.kcat(), "-b", broker.address, "-X", "allow.auto.create.topics=true", *arguments],
            input=input,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, f"kcat {' '.join(arguments)} ended with {done.returncode}: {done.stderr}"
        return done.stdout

    return run


def consume(kcat: Kcat, topic: str, layout: str, *arguments: str) -> list[str]:
    return kcat("-C", "-t", topic, "-e", "-q", "-f", layout + "\n", *arguments).splitlines()


def test_lines_come_back_in_order_with_keys_and_offsets(kcat: Kcat, new_topic: NewTopic) -> None:
    topic = new_topic()
    kcat("-P", "-t", topic, "-p", "0", "-K:", input="".join(f"k{i}:value {i}\n" for i in range(100)))

    assert consume(kcat, topic, "%p %o %k %s") == [f"0 {i} k{i} value {i}" for i in range(100)]


def test_producing_to_an_unknown_topic_creates_it(kcat: Kcat, topic_name: str) -> None:
    kcat("-P", "-t", topic_name, input="first\n")

    assert consume(kcat, topic_name, "%s") == ["first"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_survives_the_broker(kcat: Kcat, new_topic: NewTopic, codec: str) -> None:
    topic = new_topic()
    lines = [f"line {i} " + "abc" * 50 for i in range(500)]
    kcat("-P", "-t", topic, "-z", codec, "-X", "linger.ms=200", input="\n".join(lines) + "\n")

    assert consume(kcat, topic, "%s") == lines


def test_headers_and_null_values_are_kept(kcat: Kcat, new_topic: NewTopic) -> None:
    topic = new_topic()
    kcat("-P", "-t", topic, "-H", "colour=red", "-H", "colour=blue", "-H", "empty", "-K:", "-Z", input="key:\n")

    assert consume(kcat, topic, "%k|%S|%h") == ["key|-1|colour=red,colour=blue,empty=NULL"]


def test_offsets_count_from_the_end_and_from_a_number(kcat: Kcat, new_topic: NewTopic) -> None:
    topic = new_topic()
    kcat("-P", "-t", topic, input="".join(f"{i}\n" for i in range(20)))

    assert consume(kcat, topic, "%s", "-p", "0", "-o", "-3") == ["17", "18", "19"]
    assert consume(kcat, topic, "%s", "-p", "0", "-o", "18") == ["18", "19"]
    assert consume(kcat, topic, "%s", "-p", "0", "-o", "5", "-c", "2") == ["5", "6"]


def test_reading_starts_and_stops_at_a_timestamp(kcat: Kcat, new_topic: NewTopic) -> None:
    topic = new_topic()
    before_ms = int(time.time() * 1000)
    for line in ("early", "middle", "late"):
        kcat("-P", "-t", topic, input=f"{line}\n")
        time.sleep(0.005)
    stamps = [int(stamp) for stamp in consume(kcat, topic, "%T")]

    assert before_ms <= stamps[0] < stamps[1] < stamps[2] <= int(time.time() * 1000)
    assert consume(kcat, topic, "%s", "-p", "0", "-o", f"s@{stamps[1]}") == ["middle", "late"]
    assert consume(kcat, topic, "%s", "-p", "0", "-o", f"s@{stamps[0]}", "-o", f"e@{stamps[2]}") == ["early", "middle"]
    assert kcat("-Q", "-t", f"{topic}:0:{stamps[2]}").split() == [topic, "[0]", "offset", "2"]


def test_metadata_lists_brokers_topics_and_partitions(kcat: Kcat, broker: Broker, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    listing = json.loads(kcat("-L", "-J", "-t", topic))

    [node] = listing["brokers"]
    assert node["name"] == broker.address
    [described] = listing["topics"]
    assert described["topic"] == topic
    assert described["partitions"] == [
        {"partition": i, "leader": node["id"], "replicas": [{"id": node["id"]}], "isrs": [{"id": node["id"]}]}
        for i in range(3)
    ]


def test_an_idempotent_producer_works(kcat: Kcat, new_topic: NewTopic) -> None:
    topic = new_topic()
    lines = [str(i) for i in range(300)]
    kcat("-P", "-t", topic, "-X", "enable.idempotence=true", "-X", "batch.num.messages=10", input="\n".join(lines))

    assert consume(kcat, topic, "%s") == lines
