"""A key turns text into a value or says what is allowed; a table knows its keys, and the nearest one to a mistake."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.broker_keys import BROKER_KEYS
from barnabas.core.config import (
    AlterOperation,
    ConfigError,
    ConfigKey,
    ConfigSource,
    ConfigTable,
    ConfigType,
    Layer,
    Synonym,
    alter,
)
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.topic_keys import TOPIC_KEYS

BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


@pytest.mark.parametrize(
    ("type", "text", "value"),
    [
        (ConfigType.BOOLEAN, "true", True),
        (ConfigType.BOOLEAN, " FALSE ", False),
        (ConfigType.INT, " +12 ", 12),
        (ConfigType.INT, "-2147483648", -(2**31)),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.SHORT, "32767", 32767),
        (ConfigType.DOUBLE, "0.5", 0.5),
        (ConfigType.LIST, "", ()),
        (ConfigType.LIST, " a , b,c ", ("a", "b", "c")),
        (ConfigType.STRING, " text ", "text"),
    ],
)
def test_text_becomes_the_value_that_kafka_reads(type: ConfigType, text: str, value: object) -> None:
    assert ConfigKey("k", type, None, "").parse(text) == value


@pytest.mark.parametrize(
    ("type", "text"),
    [
        (ConfigType.BOOLEAN, "yes"),
        (ConfigType.BOOLEAN, ""),
        (ConfigType.INT, "2147483648"),
        (ConfigType.INT, "1_000"),
        (ConfigType.INT, "1.5"),
        (ConfigType.INT, "\u0661"),  # a digit to Python, not to Kafka
        (ConfigType.LONG, "9" * 5000),
        (ConfigType.SHORT, "32768"),
        (ConfigType.DOUBLE, "much"),
    ],
)
def test_text_of_another_type_is_refused_by_name(type: ConfigType, text: str) -> None:
    with pytest.raises(ConfigError, match=r"^Invalid value .* for configuration some\.key: ") as refusal:
        ConfigKey("some.key", type, None, "").parse(text)
    assert refusal.value.code == ErrorCode.INVALID_CONFIG


@given(st.sampled_from(sorted(BITS)), st.integers(-(2**70), 2**70))
def test_a_whole_number_is_accepted_exactly_within_its_bits(type: ConfigType, number: int) -> None:
    key = ConfigKey("k", type, None, "")
    fits = -(2 ** (BITS[type] - 1)) <= number < 2 ** (BITS[type] - 1)
    if fits:
        assert key.parse(str(number)) == number
    else:
        with pytest.raises(ConfigError):
            key.parse(str(number))


@pytest.mark.parametrize(("text", "allowed"), [("1", True), ("9", True), ("-1", True), ("0", False), ("10", False)])
def test_a_range_may_have_an_outlier_with_a_meaning_of_its_own(text: str, allowed: bool) -> None:
    key = TOPIC_KEYS["compression.gzip.level"]
    if allowed:
        assert key.parse(text) == int(text)
    else:
        with pytest.raises(ConfigError, match=r"Value must be between 1 and 9 or equal to -1$"):
            key.parse(text)


def test_not_a_number_is_in_no_range() -> None:
    with pytest.raises(ConfigError):
        ConfigKey("ratio", ConfigType.DOUBLE, 0.5, "", minimum=0, maximum=1).parse("nan")


def test_what_is_not_served_yet_is_told_apart_from_nonsense() -> None:
    assert TOPIC_KEYS["cleanup.policy"].parse("compact,delete") == ("compact", "delete")
    with pytest.raises(ConfigError, match=r"^Invalid value shred for .*: String must be one of: compact, delete$"):
        TOPIC_KEYS["cleanup.policy"].parse("shred")
    with pytest.raises(ConfigError, match="twice"):
        TOPIC_KEYS["cleanup.policy"].parse("delete,delete")
    with pytest.raises(ConfigError, match="true is not served yet"):
        TOPIC_KEYS["remote.storage.enable"].parse("true")


def test_a_password_is_not_repeated_in_an_error() -> None:
    with pytest.raises(ConfigError) as refusal:
        ConfigKey("secret", ConfigType.PASSWORD, None, "", choices=("x",)).parse("hunter2")
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize("table", [BROKER_KEYS, TOPIC_KEYS], ids=["broker", "topic"])
def test_every_default_is_a_value_that_its_key_accepts(table: ConfigTable) -> None:
    for key in table:
        text = key.render(key.default)
        assert text is None or key.parse(text) == key.default, key.name
        assert key.doc.endswith("."), key.name


def test_a_key_with_synonyms_has_no_default_that_would_hide_them() -> None:
    for key in BROKER_KEYS:
        assert not key.synonyms or key.default is None, key.name
        assert all(synonym.name in BROKER_KEYS for synonym in key.synonyms), key.name


@pytest.mark.parametrize("table", [BROKER_KEYS, TOPIC_KEYS], ids=["broker", "topic"])
def test_a_key_has_an_effect_or_none_but_not_both(table: ConfigTable) -> None:
    assert not table.keys.keys() & table.ignored.keys()


def test_an_unknown_key_names_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"^Unknown topic config name: retention.sm; did you mean 'retention.ms'\?$"):
        TOPIC_KEYS["retention.sm"]
    with pytest.raises(ConfigError, match=r"did you mean 'num.network.threads'"):
        BROKER_KEYS["num.networks.threads"]
    with pytest.raises(ConfigError, match=r"^Unknown topic config name: zzz$"):
        TOPIC_KEYS["zzz"]


def test_a_key_without_effect_warns_whatever_its_value() -> None:
    warning = BROKER_KEYS.check("num.io.threads", "many")
    assert warning == (
        "broker configuration key 'num.io.threads' has no effect: "
        "a broker is one event loop, with no pools of threads to size"
    )
    assert BROKER_KEYS.check("num.partitions", "3") is None


def test_the_stronger_layer_wins_and_a_synonym_only_without_own_value() -> None:
    table = ConfigTable(
        "test",
        [
            ConfigKey("wait.ms", ConfigType.LONG, None, "", synonyms=(Synonym("wait.hours", 3_600_000),)),
            ConfigKey("wait.hours", ConfigType.INT, 2, ""),
        ],
        {},
    )
    strong, weak = ({}, {})  # type: tuple[dict[str, str], dict[str, str]]
    layers = (Layer(ConfigSource.DYNAMIC_BROKER, strong), Layer(ConfigSource.STATIC_BROKER, weak))
    assert table.resolve("wait.ms", layers) == 7_200_000
    weak["wait.hours"] = "1"
    assert table.resolve("wait.ms", layers) == 3_600_000
    weak["wait.hours"] = "-1"
    assert table.resolve("wait.ms", layers) == -1
    weak["wait.ms"] = "10"
    assert table.resolve("wait.ms", layers) == 10
    strong["wait.ms"] = "20"
    assert table.resolve("wait.ms", layers) == 20
    assert [(c.name, c.text, c.source) for c in table.candidates("wait.ms", layers)] == [
        ("wait.ms", "20", ConfigSource.DYNAMIC_BROKER),
        ("wait.ms", "10", ConfigSource.STATIC_BROKER),
        ("wait.hours", "-1", ConfigSource.STATIC_BROKER),
        ("wait.hours", "2", ConfigSource.DEFAULT),
    ]


def test_altering_sets_deletes_appends_and_subtracts() -> None:
    table = ConfigTable(
        "test", [ConfigKey("names", ConfigType.LIST, (), ""), ConfigKey("size", ConfigType.INT, 1, "")], {}
    )
    current = {"size": "5", "other": "x"}
    assert alter(table, current, [("size", AlterOperation.SET, "6")], {}) == {"size": "6", "other": "x"}
    assert alter(table, current, [("size", AlterOperation.DELETE, None)], {}) == {"other": "x"}
    appended = alter(table, {}, [("names", AlterOperation.APPEND, "b, c")], {"names": ("a", "b")})
    assert appended == {"names": "a,b,c"}
    assert alter(table, appended, [("names", AlterOperation.SUBTRACT, "a,c")], {}) == {"names": "b"}
    assert current == {"size": "5", "other": "x"}


def test_alterations_that_make_no_sense_are_refused() -> None:
    table = ConfigTable("test", [ConfigKey("size", ConfigType.INT, 1, "")], {})
    with pytest.raises(ConfigError, match=r"^Can't APPEND to key size because its type is not LIST"):
        alter(table, {}, [("size", AlterOperation.APPEND, "1")], {})
    with pytest.raises(ConfigError, match="size cannot be null"):
        alter(table, {}, [("size", AlterOperation.SET, None)], {})
    with pytest.raises(KafkaError, match="altered twice") as refusal:
        alter(table, {}, [("size", AlterOperation.SET, "1"), ("size", AlterOperation.DELETE, None)], {})
    assert refusal.value.code == ErrorCode.INVALID_REQUEST
