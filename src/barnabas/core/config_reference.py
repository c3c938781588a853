"""The reference of all configuration keys, written from their tables: `python -m barnabas.core.config_reference`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.core.broker_config import variable_of
from barnabas.core.broker_keys import BROKER_KEYS
from barnabas.core.config import ConfigKey
from barnabas.core.topic_keys import TOPIC_KEYS

_INTRODUCTION = f"""# Configuration

<!-- Written by `python -m barnabas.core.config_reference > docs/configuration.md`. Change the tables, not this. -->

Barnabas takes Kafka's own keys. A broker reads them from a `.properties` file (`barnabas broker --config FILE`), then
from the environment, then from `--set key=value`; the later one wins. In the environment a key is written in capitals
with underscores, so `log.retention.ms` is `{variable_of("log.retention.ms")}`; `barnabas.` is not repeated, so
`barnabas.metrics.port` is `{variable_of("barnabas.metrics.port")}`.

A key that nobody knows is an error that names the nearest one. A key of Kafka's that has no effect here is accepted
with a warning; the last sections list them.

Keys that are *cluster-wide* can change while brokers run, for one broker or for all (`kafka-configs --alter`); the
others are read at the start. What is set on a topic counts before anything that is set on a broker.
"""


def reference() -> str:
    return "\n".join(
        (
            _INTRODUCTION,
            "## Broker keys\n",
            _table(("Key", "Default", "Allowed", "Update", "Meaning"), map(_broker_row, BROKER_KEYS)),
            "## Topic keys\n",
            _table(("Key", "Follows", "Default", "Allowed", "Meaning"), map(_topic_row, TOPIC_KEYS)),
            "## Broker keys without effect\n",
            _reasons(BROKER_KEYS.ignored),
            "## Topic keys without effect\n",
            _reasons(TOPIC_KEYS.ignored),
        )
    )


def _broker_row(key: ConfigKey) -> tuple[str, ...]:
    return f"`{key.name}`", _default(key), key.allowed(), key.update, key.doc


def _topic_row(key: ConfigKey) -> tuple[str, ...]:
    follows = f"`{key.synonyms[0].name}`" if key.synonyms else ""
    return f"`{key.name}`", follows, _default(key), key.allowed(), key.doc


def _default(key: ConfigKey) -> str:
    text = key.render(key.default)
    return f"`{text}`" if text else "none"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _reasons(ignored: Mapping[str, str]) -> str:
    names: dict[str, list[str]] = {}
    for name, reason in ignored.items():
        names.setdefault(reason, []).append(f"`{name}`")
    return "".join(f"- {reason[0].upper()}{reason[1:]}: {', '.join(found)}\n" for reason, found in names.items())


if __name__ == "__main__":
    print(reference(), end="")
