"""Declared configuration: what a key is, how its text becomes a value, and which of several values counts.

A `ConfigKey` declares one key, a `ConfigTable` holds the keys of one kind of resource (brokers, topics). Every value is
kept as the text that somebody wrote, in layers from the strongest to the weakest (`ConfigSource`), and parsed by its
key. A key without a value of its own may take that of a synonym, in another unit if need be: `log.retention.ms` falls
back on `log.retention.hours`. Kafka's keys that mean nothing here are known too: they warn, they never fail.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple, TypeAlias

from barnabas.core.dataclass import dataclass
from barnabas.core.errors import ErrorCode, KafkaError, shown

Value: TypeAlias = Any  # bool, int, float, str, tuple[str, ...] or None: the type that the key declares


class ConfigError(KafkaError):
    """A key or a value that cannot be accepted; the message names both, and what would be."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_CONFIG, message)


class ConfigType(IntEnum):
    """The types that DescribeConfigs knows, by their number on the wire."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where a value comes from, by its number on the wire; the lower one wins."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class UpdateMode(StrEnum):
    """Whether a broker's key can change while it runs: not at all, for one broker, or for all of them at once too."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Synonym(NamedTuple):
    """A key of the broker that stands in when nothing was set; `factor` converts from its unit to that of the asker."""

    name: str
    factor: int = 1


_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_COMMA = re.compile(r"\s*,\s*")
_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class ConfigKey:
    name: str
    type: ConfigType
    default: Value
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    also: tuple[int, ...] = ()  # values outside the range that have a meaning of their own, such as -1 for "no limit"
    choices: tuple[str, ...] = ()
    unserved: tuple[str, ...] = ()  # choices of Kafka's that are not offered here (yet)
    item: str = ""  # what an item of a list looks like, as a regular expression, and in words
    items: str = ""
    update: UpdateMode = UpdateMode.READ_ONLY
    synonyms: tuple[Synonym, ...] = ()

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> Value:
        """The value that a text stands for, or a ConfigError that says what is allowed."""
        text = text.strip()
        match self.type:
            case ConfigType.BOOLEAN:
                value = _BOOLEANS.get(text.lower())
                if value is None:
                    raise self.invalid(text, "Expected value to be either true or false")
                self._in_choices(text.lower())
                return value
            case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
                # 20 characters hold any number of 64 bits; a longer text would only keep Python's parser busy
                number = int(text) if len(text) <= 20 and _INTEGER.fullmatch(text) else None
                if number is None or not -1 << _BITS[self.type] - 1 <= number < 1 << _BITS[self.type] - 1:
                    raise self._not_a_number(text)
                return self._in_range(number)
            case ConfigType.DOUBLE:
                try:
                    decimal = float(text)
                except ValueError:
                    raise self._not_a_number(text) from None
                return self._in_range(decimal)
            case ConfigType.LIST:
                items = tuple(_COMMA.split(text)) if text else ()
                for item in items:
                    self._in_choices(item)
                    if self.item and not re.fullmatch(self.item, item):
                        raise self.invalid(f"[{', '.join(items)}]", f"Must be {self.allowed()}")
                if self.choices and len(set(items)) < len(items):
                    raise ConfigError(f"{self.name}='{text}' names something twice")
                return items
            case _:
                self._in_choices(text)
                return text

    def render(self, value: Value) -> str | None:
        """The text that `parse` would turn into this value."""
        match value:
            case None:
                return None
            case bool():
                return "true" if value else "false"
            case tuple():
                return ",".join(value)
            case _:
                return str(value)

    def allowed(self) -> str:
        """What a value may be, in words: for error messages and for the reference."""
        match self.type:
            case ConfigType.BOOLEAN:
                return "true or false"
            case ConfigType.LIST:
                if self.items:
                    return f"a list of {self.items}"
                return f"a list of: {', '.join(self.choices)}" if self.choices else "a comma-separated list"
            case ConfigType.STRING | ConfigType.CLASS | ConfigType.PASSWORD:
                return (
                    f"one of: {', '.join(choice or 'empty' for choice in self.choices)}" if self.choices else "a text"
                )
            case _:
                words = "a number" if self.type is ConfigType.DOUBLE else f"a whole number of {_BITS[self.type]} bits"
                if self.maximum is not None:
                    words += f", {_plain(self.minimum or 0)} to {_plain(self.maximum)}"
                elif self.minimum is not None:
                    words += f", at least {_plain(self.minimum)}"
                return words + "".join(f", or {value}" for value in self.also)

    def invalid(self, value: object, reason: str) -> ConfigError:
        """The error for a value, in Kafka's words: programs look for them."""
        quoted = "[hidden]" if self.sensitive else shown(value)
        return ConfigError(f"Invalid value {quoted} for configuration {self.name}: {reason}")

    def _not_a_number(self, text: str) -> ConfigError:
        return self.invalid(text, f"Not a number of type {self.type.name}; must be {self.allowed()}")

    def _in_range(self, number: float) -> float:
        low, high = self.minimum, self.maximum
        within = number == number and (low is None or number >= low) and (high is None or number <= high)
        if within or number in self.also:
            return number
        others = "".join(f" or equal to {value}" for value in self.also)
        if others and low is not None and high is not None:
            reason = f"Value must be between {_plain(low)} and {_plain(high)}"
        elif low is not None and not number >= low:
            reason = f"Value must be at least {_plain(low)}"
        else:
            reason = f"Value must be no more than {_plain(high or 0)}"
        raise self.invalid(number, reason + others)

    def _in_choices(self, item: str) -> None:
        if item in self.unserved:
            raise self.invalid(item, f"{item} is not served yet; must be {self.allowed()}")
        if self.choices and item not in self.choices:
            raise self.invalid(
                item, f"String must be one of: {', '.join(choice or 'empty' for choice in self.choices)}"
            )


class Candidate(NamedTuple):
    """One value that a key could have: under which name it was set, where, and its text."""

    name: str
    text: str
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """A key as DescribeConfigs tells it. Values of sensitive keys are withheld."""

    name: str
    value: str | None
    source: ConfigSource
    type: ConfigType
    documentation: str
    read_only: bool
    sensitive: bool
    synonyms: tuple[Candidate, ...]


class Layer(NamedTuple):
    source: ConfigSource
    values: Mapping[str, str]


class ConfigTable:
    """All keys of one kind of resource: those with an effect, and those of Kafka's that have none here, and why."""

    __slots__ = ("ignored", "keys", "kind")

    def __init__(self, kind: str, keys: Iterable[ConfigKey], ignored: Mapping[str, str]) -> None:
        self.kind = kind
        self.keys = {key.name: key for key in keys}
        self.ignored = ignored

    def __iter__(self) -> Iterator[ConfigKey]:
        return iter(self.keys.values())

    def __contains__(self, name: str) -> bool:
        return name in self.keys

    def __getitem__(self, name: str) -> ConfigKey:
        key = self.keys.get(name)
        if key is None:
            raise self.unknown(name)
        return key

    def unknown(self, name: str) -> ConfigError:
        from difflib import get_close_matches  # only ever needed to explain a mistake

        near = get_close_matches(name, self.keys, n=1) or get_close_matches(name, self.ignored, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        return ConfigError(f"Unknown {self.kind} config name: {shown(name)}{hint}")

    def check(self, name: str, text: str) -> str | None:
        """Accept a key with its value, or raise ConfigError; a warning if it is accepted but has no effect."""
        reason = self.ignored.get(name)
        if reason is not None:
            return f"{self.kind} configuration key '{name}' has no effect: {reason}"
        self[name].parse(text)
        return None

    def candidates(self, name: str, layers: Sequence[Layer]) -> Iterator[Candidate]:
        """Every value that bears on a key, the one that counts first: by key, then by layer, the default last."""
        for synonym in (Synonym(name), *self[name].synonyms):
            for source, values in layers:
                text = values.get(synonym.name)
                if text is not None:
                    yield Candidate(synonym.name, text, source)
            key = self.keys[synonym.name]
            default = key.render(key.default)
            if default is not None:
                yield Candidate(synonym.name, default, ConfigSource.DEFAULT)

    def resolve(self, name: str, layers: Sequence[Layer]) -> Value:
        """The value that counts, in the unit of the key that was asked for."""
        for candidate in self.candidates(name, layers):
            value = self.keys[candidate.name].parse(candidate.text)
            if candidate.name == name:
                return value
            factor = next(synonym.factor for synonym in self[name].synonyms if synonym.name == candidate.name)
            return value * factor if factor != 1 and value > 0 else value  # negative: "no limit" in every unit
        return None


class AlterOperation(IntEnum):
    """What IncrementalAlterConfigs may do to a key, by its number on the wire."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def alter(
    table: ConfigTable,
    current: Mapping[str, str],
    changes: Iterable[tuple[str, AlterOperation, str | None]],
    inherited: Mapping[str, Value],
) -> dict[str, str]:
    """The values that a resource has after the changes: `current` is what is set on it, `inherited` what it gets else.

    Only the arithmetic and its own rules are here; whether the outcome is acceptable is for the table's `check`.
    """
    result = dict(current)
    seen: set[str] = set()
    for name, operation, text in changes:
        if name in seen:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"configuration key '{name}' is altered twice in one request")
        seen.add(name)
        if operation is AlterOperation.DELETE:
            result.pop(name, None)
            continue
        if text is None:
            raise ConfigError(f"{name} cannot be null; delete the key to go back to what it inherits")
        if operation is not AlterOperation.SET:
            key = table[name]
            if key.type is not ConfigType.LIST:
                raise ConfigError(f"Can't {operation.name} to key {name} because its type is not LIST.")
            had = key.parse(result[name]) if name in result else inherited.get(name) or ()
            named = _COMMA.split(text.strip())
            kept = [item for item in had if item not in named]
            text = ",".join([*had, *(i for i in named if i not in had)] if operation is AlterOperation.APPEND else kept)
        result[name] = text
    return result


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)
