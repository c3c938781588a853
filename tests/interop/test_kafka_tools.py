"""Apache Kafka's own command-line tools, with the Java client inside them.

Consumers name their partition and offset, which needs no group coordinator.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import peers
from tests.peers import Broker, eventually

Tool = Callable[..., str]

CONFIGS = "kafka.admin.ConfigCommand"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
DUMP_LOG = "org.apache.kafka.tools.DumpLogSegments"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
TOPICS = "org.apache.kafka.tools.TopicCommand"
VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"


@pytest.fixture
def tool(broker: Broker) -> Tool:
    """Runs a tool against the broker."""

    def run(main_class: str, *arguments: str, input: str = "") -> str:
        return peers.kafka_tool(main_class, "--bootstrap-server", broker.address, *arguments, input=input)

    return run


def consume(tool: Tool, topic: str, offset: str, count: int, *arguments: str) -> list[str]:
    bounds = ["--partition", "0", "--offset", offset, "--max-messages", str(count), "--timeout-ms", "20000"]
    *lines, summary = tool(CONSUMER, "--topic", topic, *bounds, *arguments).splitlines()
    assert summary == f"Processed a total of {count} messages"
    return lines


def test_kafka_topics_creates_lists_describes_alters_and_deletes(tool: Tool, topic_name: str) -> None:
    def describe() -> list[str]:
        return tool(TOPICS, "--describe", "--topic", topic_name).splitlines()

    created = tool(TOPICS, "--create", "--topic", topic_name, "--partitions", "2", "--config", "retention.ms=777000")
    assert created.strip() == f"Created topic {topic_name}."
    with pytest.raises(AssertionError, match=rf"Topic '{topic_name}' already exists\."):
        tool(TOPICS, "--create", "--topic", topic_name)
    tool(TOPICS, "--alter", "--topic", topic_name, "--partitions", "3")

    eventually(lambda: len(describe()), 4)
    summary, *partitions = describe()
    assert f"Topic: {topic_name}\t" in summary
    assert "PartitionCount: 3\tReplicationFactor: 1\t" in summary
    assert "retention.ms=777000" in summary
    for i, line in enumerate(partitions):
        assert re.match(rf"\tTopic: {topic_name}\tPartition: {i}\tLeader: (\d+)\tReplicas: \1\tIsr: \1\t", line), line

    tool(TOPICS, "--delete", "--topic", topic_name)
    eventually(lambda: topic_name in tool(TOPICS, "--list").split(), False)


def test_kafka_configs_alters_and_describes_a_topic(tool: Tool, new_topic: peers.NewTopic) -> None:
    topic = new_topic(config={"retention.ms": "777000"})
    entity = ["--entity-type", "topics", "--entity-name", topic]

    changes = ["--add-config", "segment.bytes=2000000,max.message.bytes=5000", "--delete-config", "retention.ms"]
    assert f"Completed updating config for topic {topic}." in tool(CONFIGS, "--alter", *entity, *changes)
    with pytest.raises(AssertionError, match=r"InvalidConfigurationException.*no\.such\.key"):
        tool(CONFIGS, "--alter", *entity, "--add-config", "no.such.key=1")

    heading, *entries = tool(CONFIGS, "--describe", *entity).splitlines()
    assert heading == f"Dynamic configs for topic {topic} are:"
    assert [entry.split()[0] for entry in sorted(entries)] == ["max.message.bytes=5000", "segment.bytes=2000000"]
    assert "DYNAMIC_TOPIC_CONFIG:segment.bytes=2000000" in max(entries)
    assert "DEFAULT_CONFIG:log.segment.bytes=1073741824" in max(entries)


def test_kafka_configs_alters_and_describes_a_broker(tool: Tool) -> None:
    [node] = re.findall(r"\(id: (\d+) ", tool(VERSIONS))
    entity = ["--entity-type", "brokers", "--entity-name", node]

    tool(CONFIGS, "--alter", *entity, "--add-config", "log.retention.ms=777000000")
    settings = tool(CONFIGS, "--describe", "--all", *entity)
    tool(CONFIGS, "--alter", *entity, "--delete-config", "log.retention.ms")

    assert re.search(r"^  log\.retention\.ms=777000000 .*DYNAMIC_BROKER_CONFIG", settings, re.MULTILINE)
    assert re.search(r"^  log\.segment\.bytes=1073741824 ", settings, re.MULTILINE)


def test_console_lines_keep_key_and_headers_and_the_other_tools_agree(
    tool: Tool, broker: Broker, new_topic: peers.NewTopic, tmp_path: Path
) -> None:
    topic = new_topic()
    reader = ["--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"]
    lines = [f"colour:red\tk{i}\tvalue {i}" for i in range(6)]
    tool(PRODUCER, "--topic", topic, *reader, "--compression-codec", "zstd", input="\n".join(lines))

    printed = [part for name in ("key", "headers", "offset") for part in ("--formatter-property", f"print.{name}=true")]
    assert consume(tool, topic, "earliest", 6, *printed) == [f"Offset:{i}\t{line}" for i, line in enumerate(lines)]

    [directory] = broker.data_dir.rglob(f"{topic}-0")
    dumped = dump(directory)
    assert re.findall(r"keySize: (\d+) .*headerKeys: \[colour\] key: (\w+) payload: (.*)", dumped) == [
        ("2", f"k{i}", f"value {i}") for i in range(6)
    ]
    assert "compresscodec: zstd" in dumped

    [listed] = json.loads(tool(LOG_DIRS, "--describe", "--topic-list", topic).splitlines()[-1])["brokers"]
    [entry] = [entry for log_dir in listed["logDirs"] for entry in log_dir["partitions"]]
    assert entry["partition"] == f"{topic}-0"
    assert entry["size"] == (directory / f"{0:020}.log").stat().st_size

    request = tmp_path / "delete.json"
    request.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 4}]}))
    assert f"partition: {topic}-0\tlow_watermark: 4" in tool(DELETE_RECORDS, "--offset-json-file", str(request))
    assert tool(GET_OFFSETS, "--topic", topic, "--time", "earliest").strip() == f"{topic}:0:4"
    assert consume(tool, topic, "earliest", 2) == ["value 4", "value 5"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_console_lines_survive_every_codec(tool: Tool, new_topic: peers.NewTopic, codec: str) -> None:
    topic = new_topic()
    lines = [f"{i} " + "abc" * 30 for i in range(200)]
    tool(PRODUCER, "--topic", topic, "--compression-codec", codec, input="\n".join(lines))

    assert consume(tool, topic, "0", 200) == lines


def test_the_performance_tool_fills_segments_that_dump_log_finds_sound(
    tool: Tool, broker: Broker, new_topic: peers.NewTopic
) -> None:
    topic = new_topic(config={"segment.bytes": "1048576"})
    load = ["--num-records", "30000", "--record-size", "100", "--throughput", "-1", "--command-property", "acks=all"]
    assert "30000 records sent" in tool(PERFORMANCE, "--topic", topic, *load)

    assert tool(GET_OFFSETS, "--topic", topic).strip() == f"{topic}:0:30000"
    [last] = tool(GET_OFFSETS, "--topic", topic, "--time", "max-timestamp").split()
    assert 0 <= int(last.rsplit(":", 1)[1]) < 30000
    assert len(consume(tool, topic, "29990", 10)) == 10
    [directory] = broker.data_dir.rglob(f"{topic}-0")
    assert len(list(directory.glob("*.log"))) >= 3
    dumped = dump(directory)
    assert sum(int(count) for count in re.findall(r" count: (\d+) ", dumped)) == 30000
    assert "isvalid: false" not in dumped


def test_every_advertised_version_is_one_that_kafka_knows(tool: Tool) -> None:
    listing = tool(VERSIONS)

    advertised = re.findall(r"^\t(\w+)\((\d+)\): (.*?),?$", listing, re.MULTILINE)
    assert {"Produce", "Fetch", "Metadata", "ApiVersions"} <= {name for name, _, _ in advertised}
    assert not [name for name, _, _ in advertised if name == "UNKNOWN"]
    for name, _, versions in advertised:
        assert "usable" in versions or versions == "UNSUPPORTED", (name, versions)


def dump(directory: Path) -> str:
    """What kafka-dump-log says of a partition's segments, and of the indexes of those that are full.

    The index of the last segment is left out: Kafka keeps it at its full length, zeroes at the end, until it rolls.
    """
    *full, last = sorted(directory.glob("*.log"))
    indexes = [log.with_suffix(suffix) for log in full for suffix in (".index", ".timeindex")]
    files = ",".join(str(path) for path in (*full, last, *indexes))
    dumped = peers.kafka_tool(
        DUMP_LOG, "--deep-iteration", "--print-data-log", "--index-sanity-check", "--files", files
    )
    assert dumped.count("passed sanity check.") == len(indexes)
    return dumped
