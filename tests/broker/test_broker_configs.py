"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: what is set, where from, and that it counts at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages import k33_alter_configs as alter
from barnabas.wire.messages import k44_incremental_alter_configs as incremental
from barnabas.wire.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.broker.servers import ON_KAFKA, barnabas_only
from tests.broker.wire_client import BROKER, EARLIEST, TOPIC, Client, batch, now_ms
from tests.peers import BarnabasServer, Broker, eventually, free_port

SET, DELETE, APPEND, SUBTRACT = range(4)
# where a value comes from
ON_TOPIC, ON_BROKER, ON_ALL_BROKERS, STATIC, DEFAULT = 1, 2, 3, 4, 5
# types
BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = range(1, 10)
NODE = "1"
MIN_ISR = "min.insync.replicas"


def describe(
    client: Client,
    kind: int,
    name: str,
    *keys: str,
    version: int = 4,
    synonyms: bool = True,
    documentation: bool = True,
) -> Any:
    resource = DescribeConfigsResource(kind, name, list(keys) or None)
    (result,) = client.call(DescribeConfigsRequest([resource], synonyms, documentation), version).results
    return result


def value_of(client: Client, kind: int, name: str, key: str) -> Any:
    """The value of a key, and where it comes from."""
    (config,) = describe(client, kind, name, key).configs
    return config.value, config.config_source


def change(
    client: Client, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> Any:
    configs = [incremental.AlterableConfig(*each) for each in changes]
    resource = incremental.AlterConfigsResource(kind, name, configs)
    (result,) = client.call(incremental.IncrementalAlterConfigsRequest([resource], validate_only)).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def replace(client: Client, kind: int, name: str, version: int = 2, **config: str | None) -> Any:
    configs = [alter.AlterableConfig(key.replace("_", "."), value) for key, value in config.items()]
    resource = alter.AlterConfigsResource(kind, name, configs)
    (result,) = client.call(alter.AlterConfigsRequest([resource]), version).responses
    return result


@pytest.fixture
def topic(client: Client) -> str:
    return client.create_topic(config={"retention.ms": "86400000"})


# describing


@pytest.mark.parametrize("version", range(1, 5))
def test_every_version_describes_a_topic(client: Client, topic: str, version: int) -> None:
    result = describe(client, TOPIC, topic, version=version)
    assert (result.error_code, result.resource_type, result.resource_name) == (ErrorCode.NONE, TOPIC, topic)
    told = {config.name: config for config in result.configs}
    retention = told["retention.ms"]
    assert (retention.value, retention.config_source) == ("86400000", ON_TOPIC)
    assert (retention.read_only, retention.is_sensitive) == (False, False)
    first = retention.synonyms[0]
    assert (first.name, first.value, first.source) == ("retention.ms", "86400000", ON_TOPIC)
    segment = told["segment.bytes"]
    assert (segment.value, segment.config_source) == ("1073741824", DEFAULT)
    assert [(synonym.name, synonym.source) for synonym in segment.synonyms] == [("log.segment.bytes", DEFAULT)]
    if version >= 3:
        assert (retention.config_type, told["cleanup.policy"].config_type) == (LONG, LIST)
        assert (told["unclean.leader.election.enable"].config_type, segment.config_type) == (BOOLEAN, INT)
        assert all(config.documentation for config in result.configs)


FOREVER = "9223372036854775807"
HONOURED = {
    "cleanup.policy": ("delete", LIST, "log.cleanup.policy"),
    "compression.type": ("producer", STRING, "compression.type"),
    "file.delete.delay.ms": ("60000", LONG, "log.segment.delete.delay.ms"),
    "flush.messages": (FOREVER, LONG, "log.flush.interval.messages"),
    "flush.ms": (FOREVER, LONG, None),
    "index.interval.bytes": ("4096", INT, "log.index.interval.bytes"),
    "max.message.bytes": ("1048588", INT, "message.max.bytes"),
    "message.timestamp.after.max.ms": ("3600000", LONG, "log.message.timestamp.after.max.ms"),
    "message.timestamp.before.max.ms": (FOREVER, LONG, "log.message.timestamp.before.max.ms"),
    "message.timestamp.type": ("CreateTime", STRING, "log.message.timestamp.type"),
    "min.insync.replicas": ("1", INT, "min.insync.replicas"),
    "retention.bytes": ("-1", LONG, "log.retention.bytes"),
    "retention.ms": ("604800000", LONG, None),
    "segment.bytes": ("1073741824", INT, "log.segment.bytes"),
    "segment.index.bytes": ("10485760", INT, "log.index.size.max.bytes"),
    "segment.jitter.ms": ("0", LONG, None),
    "segment.ms": ("604800000", LONG, None),
    "unclean.leader.election.enable": ("false", BOOLEAN, "unclean.leader.election.enable"),
}


def test_every_honoured_key_is_told_with_its_default_type_and_synonym(client: Client) -> None:
    told = {config.name: config for config in describe(client, TOPIC, client.create_topic()).configs}
    assert told.keys() >= HONOURED.keys()
    for key, (value, kind, synonym) in HONOURED.items():
        config = told[key]
        assert (key, config.value, config.config_type, config.read_only) == (key, value, kind, False)
        if synonym:  # else the default is that of a key in another unit, which Kafka does not tell
            assert synonym in {each.name for each in config.synonyms}


def test_only_what_was_asked_for_is_told(client: Client, topic: str) -> None:
    result = describe(client, TOPIC, topic, "retention.ms", "no.such.key", synonyms=False, documentation=False)
    (config,) = result.configs
    assert (config.name, config.synonyms, config.documentation) == ("retention.ms", [], None)


def test_the_broker_describes_itself(client: Client) -> None:
    result = describe(client, BROKER, NODE)
    assert result.error_code == ErrorCode.NONE
    told = {config.name: config for config in result.configs}
    assert told["log.dirs"].config_source == STATIC
    assert told["log.dirs"].read_only
    assert (told["num.partitions"].value, told["num.partitions"].config_source) == ("1", DEFAULT)
    assert told["log.retention.ms"].read_only is False
    assert told["log.retention.hours"].value == "168"
    assert told["listeners"].value.startswith("PLAINTEXT://")
    assert all(config.config_type for config in told.values())
    assert all(config.documentation for config in told.values()) or ON_KAFKA  # which leaves internal keys without


def test_resources_that_are_not_there(client: Client, topic_name: str) -> None:
    for kind, name, code in (
        (TOPIC, topic_name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "77", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ):
        result = describe(client, kind, name)
        assert (ErrorCode(result.error_code), result.configs) == (code, [])


def test_a_name_that_no_topic_can_have_is_not_described(client: Client) -> None:
    assert describe(client, TOPIC, "not a name").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


# altering


@pytest.mark.parametrize("version", [0, 1])
def test_single_keys_are_set_and_unset(client: Client, topic: str, version: int) -> None:
    resource = incremental.AlterConfigsResource(
        TOPIC,
        topic,
        [
            incremental.AlterableConfig("segment.ms", SET, "5000"),
            incremental.AlterableConfig("retention.ms", DELETE, None),
        ],
    )
    (result,) = client.call(incremental.IncrementalAlterConfigsRequest([resource]), version).responses
    assert (result.error_code, result.error_message) in ((ErrorCode.NONE, None), (ErrorCode.NONE, ""))
    eventually(lambda: value_of(client, TOPIC, topic, "segment.ms"), ("5000", ON_TOPIC))
    assert value_of(client, TOPIC, topic, "retention.ms") == ("604800000", DEFAULT)


def test_what_is_in_a_list_is_not_added_again(client: Client, topic: str) -> None:
    assert change(client, TOPIC, topic, ("cleanup.policy", APPEND, "delete")).error_code == ErrorCode.NONE
    eventually(lambda: value_of(client, TOPIC, topic, "cleanup.policy")[0], "delete")


def test_a_topic_can_be_compacted_and_shortened_at_once(client: Client, topic: str) -> None:
    assert change(client, TOPIC, topic, ("cleanup.policy", SET, "compact,delete")).error_code == ErrorCode.NONE
    eventually(lambda: value_of(client, TOPIC, topic, "cleanup.policy")[0], "compact,delete")


def test_all_keys_are_replaced(client: Client, topic: str) -> None:
    for version in range(3):
        assert replace(client, TOPIC, topic, version, segment_ms=f"{version + 1}000").error_code == ErrorCode.NONE
        eventually(lambda of=version: value_of(client, TOPIC, topic, "segment.ms"), (f"{version + 1}000", ON_TOPIC))  # type: ignore[misc]
        assert value_of(client, TOPIC, topic, "retention.ms") == ("604800000", DEFAULT)


def test_validation_alone_changes_nothing(client: Client, topic: str) -> None:
    good = change(client, TOPIC, topic, ("retention.ms", SET, "1"), validate_only=True)
    bad = change(client, TOPIC, topic, ("retention.ms", SET, "soon"), validate_only=True)
    assert (good.error_code, bad.error_code) == (ErrorCode.NONE, ErrorCode.INVALID_CONFIG)
    assert value_of(client, TOPIC, topic, "retention.ms") == ("86400000", ON_TOPIC)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("retention.mss", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, "-5")], ErrorCode.INVALID_CONFIG),
        ([("message.timestamp.type", SET, "Never")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", APPEND, "5")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST if ON_KAFKA else ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", 9, "1")], ErrorCode.UNKNOWN_SERVER_ERROR if ON_KAFKA else ErrorCode.INVALID_REQUEST),
        ([("segment.ms", SET, "1"), ("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG),
    ],
)
def test_bad_changes_are_refused_as_a_whole(
    client: Client, topic: str, changes: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    result = change(client, TOPIC, topic, *changes)
    assert ErrorCode(result.error_code) == code
    assert ON_KAFKA or result.error_message
    assert value_of(client, TOPIC, topic, "retention.ms") == ("86400000", ON_TOPIC)
    assert value_of(client, TOPIC, topic, "segment.ms") == ("604800000", DEFAULT)


def test_unknown_resources_cannot_be_altered(client: Client, topic_name: str) -> None:
    assert change(client, TOPIC, topic_name, ("retention.ms", SET, "1")).error_code == 3
    assert change(client, BROKER, "77", ("log.retention.ms", SET, "1")).error_code != ErrorCode.NONE
    assert change(client, 99, "x", ("a", SET, "1")).error_code != ErrorCode.NONE


# brokers


@pytest.fixture
def restored(client: Client) -> Iterator[Client]:
    """What a test sets on the shared broker is unset after it."""
    yield client
    for name in ("", NODE):
        for key in ("log.retention.ms", "log.segment.bytes", "message.max.bytes"):
            change(client, BROKER, name, (key, DELETE, None))


def test_values_of_one_broker_all_brokers_and_topics_lie_above_each_other(restored: Client) -> None:
    client = restored
    topic = client.create_topic()
    retention = "retention.ms"
    assert value_of(client, TOPIC, topic, retention) == ("604800000", DEFAULT)
    assert change(client, BROKER, "", ("log.retention.ms", SET, "70000000")).error_code == ErrorCode.NONE
    eventually(lambda: value_of(client, TOPIC, topic, retention), ("70000000", ON_ALL_BROKERS))
    assert change(client, BROKER, NODE, ("log.retention.ms", SET, "60000000")).error_code == ErrorCode.NONE
    eventually(lambda: value_of(client, TOPIC, topic, retention), ("60000000", ON_BROKER))
    assert change(client, TOPIC, topic, (retention, SET, "50000000")).error_code == ErrorCode.NONE
    eventually(lambda: value_of(client, TOPIC, topic, retention), ("50000000", ON_TOPIC))
    (config,) = describe(client, TOPIC, topic, retention).configs
    assert [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms] == [
        ("retention.ms", "50000000", ON_TOPIC),
        ("log.retention.ms", "60000000", ON_BROKER),
        ("log.retention.ms", "70000000", ON_ALL_BROKERS),
        ("log.retention.hours", "168", DEFAULT),
    ]
    assert value_of(client, BROKER, NODE, "log.retention.ms") == ("60000000", ON_BROKER)
    assert value_of(client, BROKER, "", "log.retention.ms") == ("70000000", ON_ALL_BROKERS)
    change(client, TOPIC, topic, (retention, DELETE, None))
    change(client, BROKER, NODE, ("log.retention.ms", DELETE, None))
    eventually(lambda: value_of(client, TOPIC, topic, retention), ("70000000", ON_ALL_BROKERS))


def synonyms_of(client: Client, kind: int, name: str, key: str) -> list[tuple[str, str, int]]:
    (config,) = describe(client, kind, name, key).configs
    return [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms]


def test_min_insync_replicas_is_a_default_of_all_brokers(client: Client) -> None:
    topic = client.create_topic()
    own = client.create_topic(config={MIN_ISR: "2"})
    by_all, by_default = (MIN_ISR, "1", ON_ALL_BROKERS), (MIN_ISR, "1", DEFAULT)
    for kind, name in ((TOPIC, topic), (BROKER, NODE), (BROKER, "")):
        assert value_of(client, kind, name, MIN_ISR) == ("1", ON_ALL_BROKERS)
    assert synonyms_of(client, TOPIC, topic, MIN_ISR) == [by_all, by_default]
    assert synonyms_of(client, BROKER, NODE, MIN_ISR) == [by_all, by_default]
    assert synonyms_of(client, BROKER, "", MIN_ISR) == [by_all]
    assert synonyms_of(client, TOPIC, own, MIN_ISR) == [(MIN_ISR, "2", ON_TOPIC), by_all, by_default]


def test_min_insync_replicas_is_set_for_all_brokers_alone(client: Client) -> None:
    removed, own = (
        f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.",
        f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled.",
    )
    for result, text in (
        (change(client, BROKER, "", (MIN_ISR, DELETE, None)), removed),
        (replace(client, BROKER, "", log_retention_ms="70000000"), removed),
        (change(client, BROKER, NODE, (MIN_ISR, SET, "2")), own),
        (replace(client, BROKER, NODE, min_insync_replicas="2"), own),
    ):
        assert (ErrorCode(result.error_code), result.error_message) == (ErrorCode.INVALID_CONFIG, text)
    assert value_of(client, BROKER, NODE, MIN_ISR) == ("1", ON_ALL_BROKERS)


def test_min_insync_replicas_of_the_first_start_is_kept(start_broker: Callable[..., Broker]) -> None:
    with Client(start_broker({MIN_ISR: "2"}).address) as client:
        topic = client.create_topic()
        expected = [(MIN_ISR, "2", ON_ALL_BROKERS), (MIN_ISR, "2", STATIC), (MIN_ISR, "1", DEFAULT)]
        assert synonyms_of(client, TOPIC, topic, MIN_ISR) == expected
        assert change(client, BROKER, "", (MIN_ISR, SET, "1")).error_code == ErrorCode.NONE
        eventually(lambda: value_of(client, TOPIC, topic, MIN_ISR), ("1", ON_ALL_BROKERS))


@barnabas_only("it is about `barnabas up`")
def test_the_address_of_the_command_line_is_advertised_statically(broker: Broker, client: Client) -> None:
    assert value_of(client, BROKER, NODE, "advertised.listeners") == (f"PLAINTEXT://{broker.address}", STATIC)


@barnabas_only("it is about `barnabas up`")
@pytest.mark.parametrize(
    ("arguments", "settings", "expected"),
    [
        (("--host", "0.0.0.0"), {}, (None, DEFAULT)),
        ((), {"advertised.listeners": "PLAINTEXT://localhost:1234"}, ("PLAINTEXT://localhost:1234", STATIC)),
        ((), {"listeners": "PLAINTEXT://127.0.0.1:{port}"}, (None, DEFAULT)),
    ],
    ids=["every interface", "advertised elsewhere", "other listeners"],
)
def test_what_the_command_line_says_otherwise_is_advertised(
    tmp_path: Path, arguments: tuple[str, ...], settings: dict[str, str], expected: tuple[str | None, int]
) -> None:
    port = free_port()
    chosen = {key: value.format(port=port) for key, value in settings.items()}
    with (
        BarnabasServer(tmp_path / "own", chosen, arguments=arguments, port=port),
        Client(f"127.0.0.1:{port}") as client,
    ):
        assert value_of(client, BROKER, NODE, "advertised.listeners") == expected


def test_a_brokers_limit_counts_for_topics_without_one(restored: Client) -> None:
    client = restored
    plain, own = client.create_topic(), client.create_topic(config={"max.message.bytes": "100000"})
    change(client, BROKER, "", ("message.max.bytes", SET, "1000"))
    eventually(lambda: client.produce(plain, batch(b"x" * 2000)).error_code, ErrorCode.MESSAGE_TOO_LARGE)
    assert client.produce(own, batch(b"x" * 2000)).error_code == ErrorCode.NONE


def test_what_is_fixed_at_the_start_cannot_be_altered(client: Client) -> None:
    code = ErrorCode.INVALID_REQUEST if ON_KAFKA else ErrorCode.INVALID_CONFIG
    for key in ("log.dirs", "node.id", "num.partitions"):
        assert change(client, BROKER, NODE, (key, SET, "7")).error_code == code


@barnabas_only("Kafka keeps keys that it does not know, for plug-ins")
def test_an_unknown_key_of_a_broker_is_refused(client: Client) -> None:
    result = change(client, BROKER, "", ("log.retention.mss", SET, "7"))
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert "log.retention.ms" in result.error_message


@barnabas_only("the same is said of Kafka, whose restart takes its time")
def test_what_was_altered_survives_a_restart(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker()
    with Client(broker.address) as client:
        topic = client.create_topic()
        change(client, TOPIC, topic, ("segment.ms", SET, "5000"))
        change(client, BROKER, "", ("message.max.bytes", SET, "1000"))
    broker.kill()
    with Client(start_broker().address) as client:
        assert value_of(client, TOPIC, topic, "segment.ms") == ("5000", ON_TOPIC)
        assert client.produce(topic, batch(b"x" * 2000)).error_code == ErrorCode.MESSAGE_TOO_LARGE


# in effect at once


def test_a_smaller_limit_counts_at_once(client: Client, topic: str) -> None:
    assert client.produce(topic, batch(b"x" * 2000)).error_code == ErrorCode.NONE
    client.alter_topic(topic, max_message_bytes="1000")
    eventually(lambda: client.produce(topic, batch(b"x" * 2000)).error_code, ErrorCode.MESSAGE_TOO_LARGE)
    client.alter_topic(topic, max_message_bytes=None)
    eventually(lambda: client.produce(topic, batch(b"x" * 2000)).error_code, ErrorCode.NONE)


def test_another_codec_counts_at_once(client: Client, topic: str) -> None:
    client.alter_topic(topic, compression_type="zstd")
    eventually(lambda: value_of(client, TOPIC, topic, "compression.type"), ("zstd", ON_TOPIC))
    client.produce(topic, batch(b"x" * 5000))
    assert len(client.fetch(topic).records) < 1000


def test_segments_roll_by_a_new_size_and_time(client: Client, broker: Broker, topic: str) -> None:
    def segments() -> int:
        return len(list((broker.data_dir / f"{topic}-0").glob("*.log")))

    client.produce(topic, batch(b"x" * 600_000))
    client.produce(topic, batch(b"x" * 600_000))
    assert segments() == 1
    client.alter_topic(topic, segment_bytes=str(1024 * 1024))
    time.sleep(0.2 if ON_KAFKA else 0)
    stamp = now_ms()
    client.produce(topic, batch(b"x", timestamp_ms=stamp))
    assert segments() == 2
    client.alter_topic(topic, segment_bytes=None, segment_ms="100")
    client.produce(topic, batch(b"x", timestamp_ms=stamp))
    assert segments() == 2
    time.sleep(0.2)
    client.produce(topic, batch(b"x", timestamp_ms=stamp + 200))
    assert segments() == 3


def test_retention_counts_at_once(start_broker: Callable[..., Broker]) -> None:
    settings = {"log.retention.check.interval.ms": "200"}
    if ON_KAFKA:
        settings["log.initial.task.delay.ms"] = "200"
    with Client(start_broker(settings).address) as client:
        by_time, by_size, kept = (client.create_topic(config={"segment.bytes": str(1024 * 1024)}) for _ in range(3))
        for topic in (by_time, by_size, kept):
            for _ in range(4):
                client.produce(topic, batch(b"x" * 600_000))
        client.alter_topic(by_time, retention_ms="1")
        client.alter_topic(by_size, retention_bytes="1500000")
        eventually(lambda: client.list_offset(by_time, EARLIEST).offset, 4)
        eventually(lambda: client.list_offset(by_size, EARLIEST).offset, 1)
        assert client.list_offset(kept, EARLIEST).offset == 0
        assert client.fetch(by_time, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert client.produce(by_time, batch(b"next")).base_offset == 4
        assert len(client.read_all(by_size, offset=1)) == 3
