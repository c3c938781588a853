"""Where a broker's values come from, which one counts, and what is refused before anything starts."""

from __future__ import annotations

from collections import Counter

import pytest

from barnabas.core.broker_config import BrokerConfig, variable_of
from barnabas.core.broker_keys import BROKER_KEYS
from barnabas.core.config import ConfigEntry, ConfigError, ConfigSource
from barnabas.core.listeners import Endpoint, advertise

KAFKA_FILE = b"""
# what an operator of Kafka 4 typically has
process.roles=broker,controller
node.id=7
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
log.dirs=/data/a,/data/b
num.partitions=2
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=24
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def entry(config: BrokerConfig, name: str) -> ConfigEntry:
    (found,) = config.describe([name])
    return found


def test_without_any_setting_the_defaults_count() -> None:
    config = BrokerConfig.load()
    assert config["num.partitions"] == 1
    assert config["log.retention.ms"] == 7 * 24 * 3_600_000
    assert config["log.flush.interval.ms"] == 2**63 - 1
    assert config.node_id == 1
    assert config.log_dirs == ("/tmp/barnabas-logs",)
    assert config.listeners == (Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)
    assert config.warnings == []
    assert config["broker.rack"] is None
    assert config.get("broker.rack", "r0") == "r0"


def test_a_file_written_for_kafka_loads_with_warnings_only() -> None:
    config = BrokerConfig.load(("server.properties", KAFKA_FILE))
    assert config.node_id == 7
    assert config.log_dirs == ("/data/a", "/data/b")
    assert config["log.retention.ms"] == 24 * 3_600_000
    assert [listener.name for listener in config.listeners] == ["PLAINTEXT"]  # the controller's port stays closed
    assert config.advertised == (Endpoint("PLAINTEXT", "localhost", 9092, "PLAINTEXT"),)
    assert config.inter_broker_listener == "PLAINTEXT"
    assert len(config.warnings) == 5
    assert config.warnings[0].startswith("server.properties:3: broker configuration key 'process.roles' has no effect")


def test_the_command_line_counts_before_the_environment_and_that_before_the_file() -> None:
    file = ("f.properties", b"num.partitions=2\nmin.insync.replicas=2\nfetch.max.bytes=2000\n")
    environment = {"BARNABAS_NUM_PARTITIONS": "3", "BARNABAS_MIN_INSYNC_REPLICAS": "3", "HOME": "/root"}
    config = BrokerConfig.load(file, environment, ["num.partitions=4", "broker.rack=a=b"])
    assert (config["num.partitions"], config["min.insync.replicas"], config["fetch.max.bytes"]) == (4, 3, 2000)
    assert config["broker.rack"] == "a=b"
    assert config.origin("num.partitions") == "--set num.partitions"
    assert config.origin("min.insync.replicas") == "environment variable BARNABAS_MIN_INSYNC_REPLICAS"
    assert config.origin("fetch.max.bytes") == "f.properties:3"
    assert config.origin("log.dirs") is None


def test_every_key_has_an_environment_variable_of_its_own() -> None:
    variables = Counter(variable_of(name) for name in (*BROKER_KEYS.keys, *BROKER_KEYS.ignored))
    assert max(variables.values()) == 1
    assert variable_of("barnabas.metrics.port") == "BARNABAS_METRICS_PORT"


def test_variables_that_name_no_key_are_left_alone_if_they_are_known_and_refused_if_not() -> None:
    BrokerConfig.load(environment={"BARNABAS_CONTEXT": "prod", "BARNABAS_PURE": "1", "BARNABAS_TEST_PEER": "kafka"})
    with pytest.raises(ConfigError, match=r"variable BARNABAS_NUM_PARTITONS: .*did you mean 'num.partitions'"):
        BrokerConfig.load(environment={"BARNABAS_NUM_PARTITONS": "3"})


@pytest.mark.parametrize(
    ("file", "settings", "message"),
    [
        (b"\n\nnum.partitions=0\n", [], "^f.properties:3: Invalid value 0 for .* num.partitions: .* at least 1$"),
        (b"log.dri=/x\n", [], r"^f.properties:1: Unknown broker config name: log.dri; did you mean 'log.dir'\?"),
        (b"broker.rack=\\u00\n", [], r"^f.properties:1: \\u wants four hexadecimal digits"),
        (b"broker.rack=\xff\n", [], "^f.properties:1: byte 0xff is not UTF-8"),
        (b"", ["num.partitions"], "^--set num.partitions: a setting is written key=value"),
        (b"", ["num.partitions=x"], "^--set num.partitions: Invalid value x for configuration num.partitions"),
        (b"", ["node.id=1", "broker.id=2"], "node.id=1 and broker.id=2 contradict each other"),
        (b"", ["log.dirs=/a,/a"], "log.dirs=/a,/a: must name one directory at least, and none twice"),
        (b"", ["log.dirs="], "log.dirs=: must name one"),
        (b"", ["authorizer.class.name=org.example.A"], "must be one of: empty"),
        (b"", ["remote.log.storage.system.enable=true"], "not served yet"),
        (b"", ["broker.session.timeout.ms=1000"], "broker.heartbeat.interval.ms=2000 must be below"),
    ],
)
def test_a_mistake_is_told_with_its_place(file: bytes, settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BrokerConfig.load(("f.properties", file), {}, settings)


def test_the_last_of_repeated_lines_counts_and_is_warned_about() -> None:
    config = BrokerConfig.load(("f", b"num.partitions=2\nnum.partitions=3\n"))
    assert config["num.partitions"] == 3
    assert config.warnings == ["f:2: 'num.partitions' is given again; this value counts"]


def test_settings_for_one_listener_warn_and_misspelt_ones_are_errors() -> None:
    config = BrokerConfig(
        {"listener.name.internal.ssl.keystore.location": "/x", "listener.name.a.plain.sasl.jaas.config": "s"}
    )
    assert len(config.warnings) == 2
    with pytest.raises(ConfigError, match="Unknown broker config name"):
        BrokerConfig({"listener.name.internal.ssl.keystoer": "/x"})


def test_broker_id_stands_in_for_node_id() -> None:
    assert BrokerConfig({"broker.id": "5"}).node_id == 5
    assert BrokerConfig({"broker.id": "5", "node.id": "5"}).node_id == 5


def test_dynamic_values_lie_above_static_ones_and_go_away_again() -> None:
    config = BrokerConfig({"log.retention.hours": "1", "max.connections": "10"})
    assert config.set_dynamic({"log.retention.ms": "5"}, {"log.retention.ms": "7", "max.connections": "20"}) == {
        "log.retention.ms",
        "max.connections",
    }
    assert (config["log.retention.ms"], config["max.connections"]) == (5, 20)
    assert config.set_dynamic({}, {"log.retention.ms": "7", "max.connections": "20"}) == {"log.retention.ms"}
    assert config["log.retention.ms"] == 7
    assert config.set_dynamic({}, {}) == {"log.retention.ms", "max.connections"}
    assert (config["log.retention.ms"], config["max.connections"]) == (3_600_000, 10)


def test_a_dynamic_value_that_cannot_be_read_changes_nothing() -> None:
    config = BrokerConfig({})
    config.set_dynamic({"max.connections": "5"}, {})
    with pytest.raises(ConfigError):
        config.set_dynamic({"max.connections": "6"}, {"log.retention.ms": "soon"})
    assert config["max.connections"] == 5
    assert entry(config, "max.connections").value == "5"


def test_only_keys_that_can_change_while_a_broker_runs_may_be_set_then() -> None:
    config = BrokerConfig({})
    assert config.check_dynamic("log.retention.ms", "5", for_all_brokers=True) is None
    assert "no effect" in (config.check_dynamic("num.io.threads", "5", for_all_brokers=False) or "")
    with pytest.raises(ConfigError, match=r"num.partitions cannot change while a broker runs"):
        config.check_dynamic("num.partitions", "5", for_all_brokers=False)
    with pytest.raises(ConfigError, match=r"^Invalid value soon for"):
        config.check_dynamic("log.retention.ms", "soon", for_all_brokers=False)
    with pytest.raises(ConfigError, match="did you mean"):
        config.check_dynamic("log.retention.sm", "1", for_all_brokers=False)


def test_describing_tells_value_source_and_every_synonym() -> None:
    config = BrokerConfig({"log.retention.hours": "24", "num.partitions": "3"})
    config.set_dynamic({}, {"log.segment.bytes": "2000000"})
    partitions = entry(config, "num.partitions")
    assert (partitions.value, partitions.source, partitions.read_only) == ("3", ConfigSource.STATIC_BROKER, True)
    segment = entry(config, "log.segment.bytes")
    assert (segment.value, segment.source) == ("2000000", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    assert not segment.read_only
    assert [(s.text, s.source) for s in segment.synonyms] == [
        ("2000000", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("1073741824", ConfigSource.DEFAULT),
    ]
    retention = entry(config, "log.retention.ms")
    assert (retention.value, retention.source) == (None, ConfigSource.STATIC_BROKER)
    assert [(s.name, s.text) for s in retention.synonyms] == [
        ("log.retention.hours", "24"),
        ("log.retention.hours", "168"),
    ]


def test_describing_covers_every_key_with_an_effect_and_withholds_what_may_be_secret() -> None:
    config = BrokerConfig({"ssl.key.password": "hunter2", "listener.name.a.ssl.key.password": "hunter3"})
    described = config.describe()
    assert {key.name for key in BROKER_KEYS} < {entry.name for entry in described}
    assert "hunter" not in repr(described)
    assert entry(config, "ssl.key.password").sensitive
    assert config.describe(["no.such.key"]) == []


@pytest.mark.parametrize(
    ("listeners", "message"),
    [
        ("PLAINTEXT://:9092,PLAINTEXT://:9093", "names listener 'PLAINTEXT' twice"),
        ("PLAINTEXT://:9092,B://:9092", "claim the same port"),
        ("PLAINTEXT://10.0.0.1:9092,B://0.0.0.0:9092", "claim the same port"),
        ("PLAINTEXT://:70000", "port from 0 to 65535"),
        ("PLAINTEXT://:-1", "is not NAME://host:port"),
        ("9092", "is not NAME://host:port"),
        ("", "listeners is empty"),
        ("SSL://:9092", "listener 'SSL' asks for SSL, which is not served yet; served: PLAINTEXT"),
        ("OTHER://:9092", "add 'OTHER:PLAINTEXT' to listener.security.protocol.map"),
    ],
)
def test_listeners_that_cannot_be_served_are_refused(listeners: str, message: str) -> None:
    protocols = "PLAINTEXT:PLAINTEXT,B:PLAINTEXT,SSL:SSL"
    with pytest.raises(ConfigError, match=message):
        BrokerConfig({"listeners": listeners, "listener.security.protocol.map": protocols})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"advertised.listeners": "B://x:1"}, "'B' is not in listeners, which has PLAINTEXT"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "needs an address that a client can connect to"),
        ({"inter.broker.listener.name": "B"}, "inter.broker.listener.name='B' is not in listeners"),
        ({"listener.security.protocol.map": "B=PLAINTEXT"}, "is not NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "B:TLS"}, "is not NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "B:SSL,b:SSL"}, "names listener 'B' twice"),
        ({"security.inter.broker.protocol": "SSL"}, "SSL is not served yet"),
    ],
)
def test_listener_settings_must_fit_together(settings: dict[str, str], message: str) -> None:
    protocols = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT"}
    with pytest.raises(ConfigError, match=message):
        BrokerConfig({**protocols, **settings})


def test_two_listeners_may_share_a_port_on_different_interfaces() -> None:
    config = BrokerConfig(
        {
            "listeners": "clients://[::1]:9092,BROKERS://127.0.0.1:9092",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
            "inter.broker.listener.name": "brokers",
        }
    )
    assert config.listeners[0] == Endpoint("CLIENTS", "::1", 9092, "PLAINTEXT")
    assert str(config.listeners[0]) == "CLIENTS://[::1]:9092"
    assert config.inter_broker_listener == "BROKERS"


def test_a_listener_without_a_plaintext_name_serves_brokers_if_it_is_the_first() -> None:
    config = BrokerConfig({"listeners": "A://:1,B://:2", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"})
    assert config.inter_broker_listener == "A"


def test_clients_are_told_the_bound_port_and_a_host_that_they_can_reach() -> None:
    config = BrokerConfig(
        {
            "listeners": "A://0.0.0.0:0,B://127.0.0.1:0,C://:0",
            "advertised.listeners": "A://public.example:0",
            "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT",
        }
    )
    bound = [listener._replace(port=4000 + at) for at, listener in enumerate(config.listeners)]
    told = advertise(bound, config.advertised, "machine")
    assert list(map(str, told)) == ["A://public.example:4000", "B://127.0.0.1:4001", "C://machine:4002"]
