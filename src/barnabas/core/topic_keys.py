"""The topic's configuration keys: each is a key of the broker's under another name, to be set for one topic.

Only what was set on a topic is kept with it; everything else follows the broker, at once when the broker's value
changes. `retention.ms` falls back on `log.retention.ms`, and that on minutes and hours: the chain is the broker's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from barnabas.core.broker_config import BrokerConfig
from barnabas.core.broker_keys import BROKER_KEYS
from barnabas.core.config import (
    Candidate,
    ConfigEntry,
    ConfigError,
    ConfigKey,
    ConfigSource,
    ConfigTable,
    ConfigType,
    Synonym,
    Value,
)
from barnabas.core.ignored_keys import IGNORED_TOPIC_KEYS

_THROTTLED_REPLICA = r"\*|[0-9]+:[0-9]+"
_THROTTLED_REPLICAS = "partition:broker, or *"


def _follows(broker_name: str, name: str, **differences: Any) -> ConfigKey:
    return replace(
        BROKER_KEYS[broker_name],
        name=name,
        default=BROKER_KEYS.resolve(broker_name, ()),
        synonyms=(Synonym(broker_name),),
        **differences,
    )


TOPIC_KEYS = ConfigTable(
    "topic",
    (
        _follows("log.cleanup.policy", "cleanup.policy"),
        _follows("log.cleaner.min.cleanable.ratio", "min.cleanable.dirty.ratio"),
        _follows("log.cleaner.min.compaction.lag.ms", "min.compaction.lag.ms"),
        _follows("log.cleaner.max.compaction.lag.ms", "max.compaction.lag.ms"),
        _follows("log.cleaner.delete.retention.ms", "delete.retention.ms"),
        _follows(
            "log.retention.ms",
            "retention.ms",
            doc="How long records are kept; -1 keeps them for ever.",
            minimum=-1,
            also=(),
        ),
        _follows("log.retention.bytes", "retention.bytes"),
        _follows("log.segment.bytes", "segment.bytes"),
        _follows("log.roll.ms", "segment.ms", doc="The age at which a new segment begins."),
        _follows(
            "log.roll.jitter.ms",
            "segment.jitter.ms",
            doc="The most that is taken off a segment's age at random, so that not all roll at once.",
        ),
        _follows("log.index.size.max.bytes", "segment.index.bytes"),
        _follows("log.index.interval.bytes", "index.interval.bytes"),
        _follows("message.max.bytes", "max.message.bytes"),
        _follows("log.message.timestamp.type", "message.timestamp.type"),
        _follows("log.message.timestamp.before.max.ms", "message.timestamp.before.max.ms"),
        _follows("log.message.timestamp.after.max.ms", "message.timestamp.after.max.ms"),
        _follows("compression.type", "compression.type"),
        _follows("compression.gzip.level", "compression.gzip.level"),
        _follows("compression.lz4.level", "compression.lz4.level"),
        _follows("compression.zstd.level", "compression.zstd.level"),
        _follows("log.flush.interval.messages", "flush.messages"),
        _follows(
            "log.flush.interval.ms",
            "flush.ms",
            doc="How long an appended record may wait for its flush to disk.",
        ),
        _follows("log.segment.delete.delay.ms", "file.delete.delay.ms"),
        _follows("min.insync.replicas", "min.insync.replicas"),
        _follows("unclean.leader.election.enable", "unclean.leader.election.enable"),
        ConfigKey(
            "leader.replication.throttled.replicas",
            ConfigType.LIST,
            (),
            "The leaders that give what they lead to replicas that are not in sync at a bounded rate only.",
            item=_THROTTLED_REPLICA,
            items=_THROTTLED_REPLICAS,
        ),
        ConfigKey(
            "follower.replication.throttled.replicas",
            ConfigType.LIST,
            (),
            "The followers that copy at a bounded rate only, as long as they are not in sync.",
            item=_THROTTLED_REPLICA,
            items=_THROTTLED_REPLICAS,
        ),
        ConfigKey(
            "remote.storage.enable",
            ConfigType.BOOLEAN,
            False,
            "Tiered storage is not served: only false is accepted.",
            unserved=("true",),
            synonyms=(Synonym("remote.log.storage.system.enable"),),
        ),
    ),
    IGNORED_TOPIC_KEYS,
)


_LAGS = ("min.compaction.lag.ms", "max.compaction.lag.ms")


def check_topic(overrides: Mapping[str, str | None]) -> list[str]:
    """Accept what is to be set on a topic, or raise ConfigError; the warnings are about keys that have no effect."""
    warnings = []
    for name, text in overrides.items():
        if text is None:
            raise ConfigError(f"Null value not supported for topic configs: {name}; leave it out to follow the broker")
        warning = TOPIC_KEYS.check(name, text)
        if warning:
            warnings.append(warning)
    least, most = (TOPIC_KEYS[name].parse(overrides.get(name) or str(TOPIC_KEYS[name].default)) for name in _LAGS)
    if least > most:
        raise ConfigError(f"conflict topic config setting {_LAGS[0]} ({least}) > {_LAGS[1]} ({most})")
    return warnings


def resolve_topic(overrides: Mapping[str, str], broker: BrokerConfig) -> dict[str, Value]:
    """The value of every topic key, from what was set on the topic and else from the broker."""
    return {
        key.name: key.parse(overrides[key.name]) if key.name in overrides else _of_broker(key, broker)
        for key in TOPIC_KEYS
    }


def _of_broker(key: ConfigKey, broker: BrokerConfig) -> Value:
    return broker[key.synonyms[0].name] if key.synonyms else key.default


def describe_topic(
    overrides: Mapping[str, str], broker: BrokerConfig, names: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """What DescribeConfigs tells about a topic; `names` narrows it, and unknown ones are passed over as Kafka does.

    Keys without an effect are told only where they are set, so that a tool finds what it has written.
    """
    entries = []
    for key in TOPIC_KEYS:
        text = key.render(_of_broker(key, broker)) or ""
        candidates = broker.candidates(key.synonyms[0].name) if key.synonyms else ()
        if not candidates:
            candidates = (Candidate(key.name, text, ConfigSource.DEFAULT),)
        if key.name in overrides:
            text = overrides[key.name]
            candidates = (Candidate(key.name, text, ConfigSource.TOPIC), *candidates)
        entries.append(ConfigEntry(key.name, text, candidates[0].source, key.type, key.doc, False, False, candidates))
    for name in overrides.keys() & IGNORED_TOPIC_KEYS.keys():
        own = Candidate(name, overrides[name], ConfigSource.TOPIC)
        entries.append(
            ConfigEntry(name, own.text, own.source, ConfigType.STRING, IGNORED_TOPIC_KEYS[name], False, False, (own,))
        )
    wanted = None if names is None else frozenset(names)
    return sorted(entry for entry in entries if wanted is None or entry.name in wanted)
