"""A topic's values: its own where it has any, else the broker's, in the topic key's unit."""

from __future__ import annotations

import pytest

from barnabas.core.broker_config import BrokerConfig
from barnabas.core.config import ConfigEntry, ConfigError, ConfigSource, ConfigType
from barnabas.core.topic_keys import TOPIC_KEYS, check_topic, describe_topic, resolve_topic

DEMANDED = """
    cleanup.policy retention.ms retention.bytes segment.bytes segment.ms segment.index.bytes segment.jitter.ms
    index.interval.bytes max.message.bytes message.timestamp.type message.timestamp.before.max.ms
    message.timestamp.after.max.ms compression.type compression.gzip.level compression.lz4.level compression.zstd.level
    flush.messages flush.ms file.delete.delay.ms min.insync.replicas unclean.leader.election.enable
"""


def entry(overrides: dict[str, str], broker: BrokerConfig, name: str) -> ConfigEntry:
    (found,) = describe_topic(overrides, broker, [name])
    return found


def test_every_demanded_key_has_an_effect() -> None:
    assert set(DEMANDED.split()) <= TOPIC_KEYS.keys.keys()


def test_a_topic_without_settings_follows_the_broker() -> None:
    values = resolve_topic({}, BrokerConfig({"log.retention.minutes": "2", "log.roll.hours": "1"}))
    assert values["retention.ms"] == 120_000
    assert values["segment.ms"] == 3_600_000
    assert values["cleanup.policy"] == ("delete",)
    assert values["flush.ms"] == 2**63 - 1
    assert set(values) == set(TOPIC_KEYS.keys)


def test_every_default_is_what_an_unconfigured_broker_gives() -> None:
    assert resolve_topic({}, BrokerConfig({})) == {key.name: key.default for key in TOPIC_KEYS}


def test_what_is_set_on_the_topic_counts_most_and_the_rest_follows_a_change_at_once() -> None:
    broker = BrokerConfig({"log.retention.hours": "1"})
    overrides = {"segment.bytes": "1048576"}
    broker.set_dynamic({}, {"log.retention.ms": "9", "log.segment.bytes": "2097152"})
    values = resolve_topic(overrides, broker)
    assert (values["retention.ms"], values["segment.bytes"]) == (9, 1_048_576)


def test_keys_are_checked_before_they_are_set() -> None:
    assert check_topic({"retention.ms": "-1", "retention.bytes": "10"}) == []
    (warning,) = check_topic({"preallocate": "true"})
    assert warning == "topic configuration key 'preallocate' has no effect: segments are never preallocated"
    with pytest.raises(ConfigError, match=r": retention.m; did you mean 'retention.ms'"):
        check_topic({"retention.m": "1"})
    with pytest.raises(
        ConfigError, match=r"^Invalid value -2 for configuration retention.ms: Value must be at least -1$"
    ):
        check_topic({"retention.ms": "-2"})
    assert check_topic({"cleanup.policy": "compact,delete", "min.compaction.lag.ms": "5"}) == []
    with pytest.raises(ConfigError, match=r"min.compaction.lag.ms \(5\) > max.compaction.lag.ms \(4\)"):
        check_topic({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"})
    with pytest.raises(ConfigError, match=r"^Null value not supported for topic configs: retention.ms"):
        check_topic({"retention.ms": None})


def test_describing_tells_the_chain_from_the_topic_down_to_the_default() -> None:
    broker = BrokerConfig({"log.retention.hours": "24"})
    broker.set_dynamic({"log.retention.ms": "3"}, {"log.retention.ms": "4"})
    told = entry({"retention.ms": "1"}, broker, "retention.ms")
    assert (told.value, told.source, told.type) == ("1", ConfigSource.TOPIC, ConfigType.LONG)
    assert not told.read_only
    assert not told.sensitive
    assert told.documentation == "How long records are kept; -1 keeps them for ever."
    assert told.synonyms == (
        ("retention.ms", "1", ConfigSource.TOPIC),
        ("log.retention.ms", "3", ConfigSource.DYNAMIC_BROKER),
        ("log.retention.ms", "4", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("log.retention.hours", "24", ConfigSource.STATIC_BROKER),
        ("log.retention.hours", "168", ConfigSource.DEFAULT),
    )


def test_a_value_that_comes_from_another_unit_is_told_in_the_key_s_own() -> None:
    told = entry({}, BrokerConfig({"log.retention.hours": "24"}), "retention.ms")
    assert (told.value, told.source) == ("86400000", ConfigSource.STATIC_BROKER)
    assert entry({}, BrokerConfig({}), "retention.ms").source == ConfigSource.DEFAULT


def test_keys_without_effect_are_described_only_where_they_are_set() -> None:
    broker = BrokerConfig({})
    assert "preallocate" not in {told.name for told in describe_topic({}, broker)}
    told = entry({"preallocate": "true"}, broker, "preallocate")
    assert (told.value, told.source) == ("true", ConfigSource.TOPIC)
    assert len(describe_topic({}, broker)) == len(TOPIC_KEYS.keys)
