"""Options that begin with `kafka.`: Kafka's own names, handed on to our client, whose options have them in snake case.

Names that Kafka's clients know and that mean nothing here (sizes of socket buffers, say) are taken and have no effect,
so that a job that was written for Spark's own source runs as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from barnabas.client.connections import parse_addresses
from barnabas.client.list_offsets import Isolation
from barnabas.client.options import WrongOption
from barnabas.spark.option_values import Parse, boolean, check_known, number, one_of, text, wrong

PREFIX = "kafka."
BOOTSTRAP = "kafka.bootstrap.servers"


class Known(NamedTuple):
    """An option of our clients, and how its value is read."""

    name: str
    parse: Parse[Any]


CLIENT: Mapping[str, Known] = {
    "client.id": Known("client_id", text),
    "request.timeout.ms": Known("request_timeout_ms", number(1)),
    "socket.connection.setup.timeout.ms": Known("connect_timeout_ms", number(1)),
    "default.api.timeout.ms": Known("retry_timeout_ms", number(1)),
}
"""What every client takes."""

CONSUMER: Mapping[str, Known] = {
    **CLIENT,
    "isolation.level": Known("isolation_level", one_of({level.name.lower(): level for level in Isolation})),
    "fetch.min.bytes": Known("fetch_min_bytes", number(0)),
    "fetch.max.wait.ms": Known("fetch_max_wait_ms", number(0)),
    "fetch.max.bytes": Known("fetch_max_bytes", number(1)),
    "max.partition.fetch.bytes": Known("max_partition_fetch_bytes", number(1)),
    "check.crcs": Known("check_crcs", boolean),
    "client.rack": Known("client_rack", text),
    "metadata.max.age.ms": Known("metadata_max_age_ms", number(1)),
    "group.id": Known("group", text),
}

NO_EFFECT = frozenset(
    {
        "allow.auto.create.topics",
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "exclude.internal.topics",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
    }
)

REFUSED = {
    "auto.offset.reset": "set startingOffsets instead",
    "enable.auto.commit": "Spark keeps the offsets",
    "interceptor.classes": "interceptors are Java classes",
    "key.deserializer": "keys are read as bytes; decode them in the DataFrame",
    "key.serializer": "keys are written as bytes; encode them in the DataFrame",
    "value.deserializer": "values are read as bytes; decode them in the DataFrame",
    "value.serializer": "values are written as bytes; encode them in the DataFrame",
}
"""Those that Spark's own source refuses too."""


@dataclass(frozen=True)
class KafkaOptions:
    """The cluster, and what was said about how to talk to it, by the names of our clients' options."""

    bootstrap: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def client_settings(self) -> dict[str, Any]:
        """Those that a bare client takes."""
        names = {known.name for known in CLIENT.values()}
        return {name: value for name, value in self.settings.items() if name in names}


def is_kafka_option(name: str) -> bool:
    return name.lower().startswith(PREFIX)


def parse_kafka_options(options: Mapping[str, str], table: Mapping[str, Known]) -> KafkaOptions:
    """All options that begin with `kafka.`, read by a table of those that the client takes."""
    bootstrap = options.get(BOOTSTRAP)
    if bootstrap is None:
        raise WrongOption(f"{BOOTSTRAP} is missing: the addresses of the cluster, such as host:9092")
    try:
        parse_addresses(bootstrap)
    except ValueError as error:
        raise wrong(BOOTSTRAP, bootstrap, f"host:port[,host:port...]: {error}") from None
    settings = {}
    for option, given in options.items():
        if not is_kafka_option(option) or option == BOOTSTRAP:
            continue
        name = option.removeprefix(PREFIX)
        if name in REFUSED:
            raise WrongOption(f"{option} cannot be set: {REFUSED[name]}")
        if name == "security.protocol":
            one_of({"plaintext": "plaintext"})(option, given)
        elif name not in NO_EFFECT:
            check_known([option], [PREFIX + known for known in (*table, "bootstrap.servers")])
            settings[table[name].name] = table[name].parse(option, given)
    return KafkaOptions(bootstrap, settings)
