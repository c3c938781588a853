"""The options of writing: those of Spark's own Kafka sink, and those that make a write exactly once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from barnabas.client.options import WrongOption
from barnabas.client.producer import Producer
from barnabas.records.compression import BY_NAME
from barnabas.spark.kafka_options import (
    CLIENT,
    PREFIX,
    KafkaOptions,
    Known,
    is_kafka_option,
    parse_kafka_options,
)
from barnabas.spark.option_values import Parse, boolean, check_known, number, one_of, parse_all, text, wrong

DEFAULT_CONTROL_TOPIC = "_barnabas-spark-decisions"
DEFAULT_TRANSACTION_TIMEOUT_MS = 15 * 60_000
"""As long as Kafka lets a transaction be open at the most, unless told otherwise: the slowest task, and the commit."""

_DEFAULT_MAX_BLOCK_MS = 60_000
_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_LONGEST_PREFIX = 200
_ACKS: Mapping[str, int | str] = {"all": "all", "-1": "all", "1": 1, "0": 0}

PRODUCER: Mapping[str, Known] = {
    **{name: known for name, known in CLIENT.items() if name != "default.api.timeout.ms"},
    "acks": Known("acks", one_of(_ACKS)),
    "batch.size": Known("batch_size", number(1)),
    "buffer.memory": Known("buffer_memory", number(1)),
    "compression.type": Known("compression_type", one_of({name: name for name in BY_NAME})),
    "delivery.timeout.ms": Known("delivery_timeout_ms", number(1)),
    "enable.idempotence": Known("enable_idempotence", boolean),
    "linger.ms": Known("linger_ms", number(0)),
    "max.block.ms": Known("max_block_ms", number(0)),
    "max.in.flight.requests.per.connection": Known("max_in_flight_requests_per_connection", number(1)),
    "max.request.size": Known("max_request_size", number(1)),
    "metadata.max.age.ms": Known("metadata_max_age_ms", number(1)),
    "transaction.timeout.ms": Known("transaction_timeout_ms", number(1)),
}
_NO_EFFECT = frozenset(
    {
        "kafka.metadata.max.idle.ms",
        "kafka.partitioner.adaptive.partitioning.enable",
        "kafka.partitioner.availability.timeout.ms",
        "kafka.retries",
    }
)
"""Kafka's producers know these too; ours repeats what fails until `delivery.timeout.ms` is over."""


@dataclass(frozen=True)
class WriteOptions:
    kafka: KafkaOptions
    topic: str | None
    """Where all rows go; None: each row says it in its column `topic`."""
    prefix: str | None
    """What the transactional ids begin with; None: at least once, without transactions."""
    write_id: str | None
    """The name of a batch write, which is done once however often it is run."""
    control_topic: str

    @property
    def max_block_ms(self) -> int:
        """How long to wait for a cluster that cannot be reached, or does not answer."""
        return int(self.kafka.settings.get("max_block_ms", _DEFAULT_MAX_BLOCK_MS))

    @property
    def transaction_timeout_ms(self) -> int:
        return int(self.kafka.settings.get("transaction_timeout_ms", DEFAULT_TRANSACTION_TIMEOUT_MS))


def _topic(option: str, given: str) -> str:
    if not _LEGAL_TOPIC.fullmatch(given) or given in (".", ".."):
        raise wrong(option, given, "a topic's name: up to 249 letters, digits, '.', '_' and '-'")
    return given


def _prefix(option: str, given: str) -> str:
    if not given.strip() or len(given) > _LONGEST_PREFIX:
        raise wrong(option, given, f"a name of 1 to {_LONGEST_PREFIX} letters that no other query or job has")
    return given


def _write_id(option: str, given: str) -> str:
    if not given.strip():
        raise wrong(option, given, "a name for this write, such as a date")
    return given


_OPTIONS: Mapping[str, Parse[Any]] = {
    "topic": _topic,
    "transactionalIdPrefix": _prefix,
    "writeId": _write_id,
    "controlTopic": _topic,
    "checkpointLocation": text,
    "includeHeaders": boolean,
}
"""The last two have no effect here: the one is Spark's own, which hands it to the sink of a stream too; the other is of
Spark's own Kafka sink, which writes the column `headers` wherever there is one, whatever the option says."""


def parse_batch_write_options(options: Mapping[str, str]) -> WriteOptions:
    return _parse(options)


def parse_stream_write_options(options: Mapping[str, str]) -> WriteOptions:
    write = _parse(options)
    if write.write_id is not None:
        raise WrongOption("writeId is for batch writes; the batches of a stream have numbers")
    return write


def _parse(options: Mapping[str, str]) -> WriteOptions:
    check_known([name for name in options if not is_kafka_option(name)], _OPTIONS)
    if f"{PREFIX}transactional.id" in options:
        raise WrongOption("kafka.transactional.id cannot be set: every task needs one; set transactionalIdPrefix")
    given = parse_all(options, _OPTIONS)
    prefix = given.get("transactionalIdPrefix")
    for name in ("writeId", "controlTopic"):
        if name in given and prefix is None:
            raise WrongOption(f"{name} is of use with transactionalIdPrefix only, which makes the write exactly once")
    kafka = parse_kafka_options({name: value for name, value in options.items() if name not in _NO_EFFECT}, PRODUCER)
    if prefix is not None:
        _check_exact(kafka)
    Producer(kafka.bootstrap, **kafka.settings)  # made only to learn whether its options go together
    return WriteOptions(
        kafka=kafka,
        topic=given.get("topic"),
        prefix=prefix,
        write_id=given.get("writeId"),
        control_topic=given.get("controlTopic", DEFAULT_CONTROL_TOPIC),
    )


def _check_exact(kafka: KafkaOptions) -> None:
    """Transactions need what makes a producer's retries harmless."""
    if kafka.settings.get("acks", "all") != "all" or not kafka.settings.get("enable_idempotence", True):
        raise WrongOption("transactionalIdPrefix needs kafka.acks=all and kafka.enable.idempotence=true")
