"""The controller on configurations: what is set on topics, on one broker, or on all of them.

Both requests come to the same: what the resource would have set afterwards is worked out and checked as a whole, and
the difference becomes records; and what that means for elections (`election.rules_change`) goes with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from barnabas.cluster.election import MIN_ISR, rules_change
from barnabas.cluster.events import AlterConfigs, AlteredConfig, ConfigChange, Failure, IncrementalAlterConfigs
from barnabas.cluster.fold import apply
from barnabas.cluster.image import BROKER_RESOURCE, ELR_FEATURE, TOPIC_RESOURCE, ConfigResource, Image
from barnabas.cluster.outcome import Context, Outcome
from barnabas.cluster.records import ConfigRecord
from barnabas.core.broker_config import BrokerConfig
from barnabas.core.broker_keys import BROKER_KEYS
from barnabas.core.config import AlterOperation, ConfigError, ConfigTable, Value, alter
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.topic_keys import TOPIC_KEYS, check_topic, resolve_topic

MAX_VALUE_BYTES = 32_767


def incremental_alter_configs(image: Image, event: IncrementalAlterConfigs, context: Context) -> Outcome:
    def wanted(resource: ConfigResource, changes: tuple[ConfigChange, ...]) -> dict[str, str]:
        table, inherited = _inheritance(resource, context.config)
        current = image.config(resource.type, resource.name)
        operations = [(change.name, _operation(change), change.value) for change in changes]
        return alter(table, current, operations, inherited)

    return _alter_each(image, event.resources, event.validate_only, wanted, context.config)


def alter_configs(image: Image, event: AlterConfigs, context: Context) -> Outcome:
    def wanted(resource: ConfigResource, values: tuple[tuple[str, str | None], ...]) -> dict[str, str]:
        table, inherited = _inheritance(resource, context.config)
        return alter(table, {}, [(name, AlterOperation.SET, value) for name, value in values], inherited)

    return _alter_each(image, event.resources, event.validate_only, wanted, context.config)


def _alter_each(
    image: Image,
    resources: Iterable[tuple[ConfigResource, tuple[object, ...]]],
    validate_only: bool,
    wanted: Callable[..., dict[str, str]],
    config: BrokerConfig,
) -> Outcome:
    requested = list(resources)
    times = Counter(resource for resource, _ in requested)
    records: list[ConfigRecord] = []
    results: list[AlteredConfig] = []
    warnings: list[str] = []
    for resource, changes in requested:
        try:
            if times[resource] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{_describe(resource)} is altered twice in one request")
            _check_exists(image, resource)
            after = wanted(resource, changes)
            warnings += _check(resource, after, config)
            _check_min_isr(image, resource, after)
            if not validate_only:
                records += config_records(resource, image.config(resource.type, resource.name), after)
            results.append(AlteredConfig(resource))
        except KafkaError as error:
            results.append(AlteredConfig(resource, Failure(error.code, error.message)))
    after_all = apply(image, records, image.index)
    outcome = rules_change(after_all, config, records).outcome(tuple(results), before=records)
    return replace(outcome, warnings=(*warnings, *outcome.warnings))


def config_records(resource: ConfigResource, before: Mapping[str, str], after: Mapping[str, str]) -> list[ConfigRecord]:
    """The records that lead from one set of values to the other."""
    values: dict[str, str | None] = {name: None for name in before if name not in after}
    values |= {name: value for name, value in after.items() if before.get(name) != value}
    return [
        ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
        for name, value in values.items()
    ]


def check_values(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is not None and len(value.encode()) > MAX_VALUE_BYTES:
            raise ConfigError(f"the value of {name} is longer than {MAX_VALUE_BYTES} bytes")


def _check(resource: ConfigResource, values: Mapping[str, str], config: BrokerConfig) -> list[str]:
    check_values(values)
    if resource.type == TOPIC_RESOURCE:
        return check_topic(values)
    for_all = resource.name == ""
    warnings = (config.check_dynamic(name, text, for_all_brokers=for_all) for name, text in values.items())
    return [warning for warning in warnings if warning]


def _check_min_isr(image: Image, resource: ConfigResource, after: Mapping[str, str]) -> None:
    """Eligible leader replicas (KIP-966) are safe only if all brokers have the same `min.insync.replicas`."""
    if resource.type != BROKER_RESOURCE or not image.features.get(ELR_FEATURE):
        return
    before, wanted = image.config(resource.type, resource.name).get(MIN_ISR), after.get(MIN_ISR)
    if resource.name == "":
        if before is not None and wanted is None:
            raise ConfigError(f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.")
    elif wanted not in (None, before):
        raise ConfigError(f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled.")


def _check_exists(image: Image, resource: ConfigResource) -> None:
    if resource.type == TOPIC_RESOURCE:
        if resource.name not in image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.name}' does not exist.")
    elif resource.type == BROKER_RESOURCE:
        known = [str(broker) for broker in sorted(image.brokers)]
        if resource.name and resource.name not in known:
            raise KafkaError(
                ErrorCode.BROKER_ID_NOT_REGISTERED,
                f"broker '{resource.name}' is not registered; there are: {', '.join(known)}, and '' for all of them",
            )
    else:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{_describe(resource)}: only topics and brokers have configurations"
        )


def _inheritance(resource: ConfigResource, config: BrokerConfig) -> tuple[ConfigTable, Mapping[str, Value]]:
    """The keys that the resource may have, and the values that it gets for what is not set on it."""
    if resource.type == TOPIC_RESOURCE:
        return TOPIC_KEYS, resolve_topic({}, config)
    return BROKER_KEYS, {key.name: config[key.name] for key in BROKER_KEYS}


def _operation(change: ConfigChange) -> AlterOperation:
    try:
        return AlterOperation(change.operation)
    except ValueError:
        message = f"operation {change.operation} on {change.name} is unknown: 0 sets, 1 deletes, 2 appends, 3 subtracts"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message) from None


def _describe(resource: ConfigResource) -> str:
    kinds = {TOPIC_RESOURCE: "topic", BROKER_RESOURCE: "broker"}
    return f"{kinds.get(resource.type, f'resource of type {resource.type}')} '{resource.name}'"
