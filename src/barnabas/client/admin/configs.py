"""Configuration of topics and brokers: what holds, where it comes from, and how to change it while running."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from barnabas.client.client import Client
from barnabas.client.errors import refused
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

_SET = 0
_DELETE = 1


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4


class ConfigSource(IntEnum):
    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    CLUSTER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    documentation: str | None


async def describe_configs(
    client: Client, resource: ResourceType, name: str, *, documentation: bool = False
) -> list[ConfigEntry]:
    """Every key of a topic or broker, sorted by name."""
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=resource, resource_name=name, configuration_keys=None)],
        include_documentation=documentation,
    )
    return _entries((await _ask(client, resource, name, request)).results[0])


async def describe_topic_configs(
    client: Client, names: Iterable[str], keys: Iterable[str]
) -> dict[str, dict[str, ConfigEntry]]:
    """Some keys of many topics, asked for at once: topic to key to what holds."""
    wanted = list(keys)
    resources = [DescribeConfigsResource(ResourceType.TOPIC, name, wanted) for name in names]
    if not resources:
        return {}
    response = await client.metadata.ask_any(DescribeConfigsRequest(resources=resources))
    return {result.resource_name: {entry.name: entry for entry in _entries(result)} for result in response.results}


def _entries(result: Any) -> list[ConfigEntry]:
    if result.error_code:
        what = f"configuration of {ResourceType(result.resource_type).name.lower()} {result.resource_name!r}"
        raise refused(result.error_code, what, result.error_message)
    entries = [
        ConfigEntry(
            entry.name,
            entry.value,
            ConfigSource(entry.config_source) if entry.config_source in _SOURCES else ConfigSource.UNKNOWN,
            entry.read_only,
            entry.is_sensitive,
            entry.documentation,
        )
        for entry in result.configs
    ]
    return sorted(entries, key=lambda entry: entry.name)


async def alter_configs(
    client: Client,
    resource: ResourceType,
    name: str,
    *,
    set_: Mapping[str, str] | None = None,
    delete: Iterable[str] = (),
) -> None:
    """Set some keys and return others to what they inherit; keys that are not named keep their values."""
    changes = [AlterableConfig(name=key, config_operation=_SET, value=value) for key, value in (set_ or {}).items()]
    changes += [AlterableConfig(name=key, config_operation=_DELETE, value=None) for key in delete]
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=resource, resource_name=name, configs=changes)]
    )
    result = (await _ask(client, resource, name, request)).responses[0]
    if result.error_code:
        raise refused(result.error_code, f"cannot alter {resource.name.lower()} {name!r}", result.error_message)


_SOURCES = frozenset(ConfigSource)


async def _ask(client: Client, resource: ResourceType, name: str, request: object) -> Any:
    """A broker's configuration is its own affair; a topic's is the same everywhere."""
    if resource is ResourceType.BROKER and name:
        if int(name) not in client.metadata.cluster.brokers:
            await client.metadata.refresh([])
        broker = client.metadata.cluster.brokers.get(int(name))
        if broker is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {name} does not serve")
        return await client.ask(broker, request)
    return await client.metadata.ask_any(request)
