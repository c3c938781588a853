"""DescribeConfigs 1-4: every key that we honour, with its value, where that comes from, and what it means.

A broker answers for itself and, under the empty name, for what is set for all brokers; a topic can be asked of any
broker. An empty or null list of keys asks for all.

- 3: types and documentation. Other resources (loggers, client metrics, groups) have no configuration here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cluster.image import BROKER_RESOURCE, TOPIC_RESOURCE
from barnabas.cluster.topics import check_name
from barnabas.core.config import ConfigEntry, ConfigSource
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.topic_keys import describe_topic
from barnabas.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.broker.dispatch import Context

_FOR_ALL = ConfigSource.DYNAMIC_DEFAULT_BROKER


def handle(request: DescribeConfigsRequest, context: Context) -> DescribeConfigsResponse:
    response = DescribeConfigsResponse()
    for resource in request.resources:
        result = DescribeConfigsResult(ErrorCode.NONE, None, resource.resource_type, resource.resource_name)
        response.results.append(result)
        try:
            entries = _entries(resource, context.broker)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            context.broker.metrics.error(32, error.code)
            continue
        for entry in entries:
            synonyms = entry.synonyms if request.include_synonyms else ()
            result.configs.append(
                DescribeConfigsResourceResult(
                    entry.name,
                    entry.value,
                    entry.read_only,
                    entry.source,
                    entry.sensitive,
                    [DescribeConfigsSynonym(synonym.name, synonym.text, synonym.source) for synonym in synonyms],
                    entry.type,
                    entry.documentation if request.include_documentation else None,
                )
            )
    return response


def _entries(resource: DescribeConfigsResource, broker: Broker) -> list[ConfigEntry]:
    name, keys = resource.resource_name, resource.configuration_keys or None
    if resource.resource_type == TOPIC_RESOURCE:
        check_name(name)
        if name not in broker.metadata.image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'")
        return describe_topic(broker.metadata.image.config(TOPIC_RESOURCE, name), broker.config, keys)
    if resource.resource_type == BROKER_RESOURCE:
        if name == "":
            return _set_for_all_brokers(broker, keys)
        if name != str(broker.broker_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"this is broker {broker.broker_id}; ask broker '{name}' for its configuration",
            )
        return broker.config.describe(keys)
    raise KafkaError(
        ErrorCode.INVALID_REQUEST, f"resources of type {resource.resource_type} have no configuration here"
    )


def _set_for_all_brokers(broker: Broker, keys: list[str] | None) -> list[ConfigEntry]:
    """What is set for all brokers, also where this broker has a value of its own that counts more."""
    set_for_all = broker.metadata.image.config(BROKER_RESOURCE, "")
    return [
        entry._replace(
            value=None if entry.sensitive else set_for_all[entry.name],
            source=_FOR_ALL,
            synonyms=tuple(synonym for synonym in entry.synonyms if synonym.source is _FOR_ALL),
        )
        for entry in broker.config.describe(keys)
        if entry.name in set_for_all
    ]
