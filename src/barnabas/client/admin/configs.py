"""Configuration of topics, brokers, their loggers, groups and client metrics: what holds, and how to change it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from barnabas.client.client import Client
from barnabas.client.errors import refused
from barnabas.client.outcomes import alone, refusal, settled
from barnabas.client.routes import ANY, BROKERS, Place, ask, ask_one
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.k74_list_config_resources import ListConfigResourcesRequest


class ResourceType(IntEnum):
    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    """By its id; the empty name is what holds for all brokers."""
    BROKER_LOGGER = 8
    """The levels of a broker's loggers, by its id."""
    CLIENT_METRICS = 16
    GROUP = 32

    @classmethod
    def _missing_(cls, value: object) -> ResourceType:
        return cls.UNKNOWN


class ConfigSource(IntEnum):
    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    CLUSTER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8

    @classmethod
    def _missing_(cls, value: object) -> ConfigSource:
        return cls.UNKNOWN


class ConfigType(IntEnum):
    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9

    @classmethod
    def _missing_(cls, value: object) -> ConfigType:
        return cls.UNKNOWN


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigResource(NamedTuple):
    type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type.name.lower().replace('_', ' ')} {self.name!r}"


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A value that would hold if those before it were not there."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    type: ConfigType
    documentation: str | None
    synonyms: tuple[ConfigSynonym, ...]
    """Only on request, and so is the documentation."""


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """What to do with a key; DELETE returns it to what it inherits, APPEND and SUBTRACT are for lists."""

    name: str
    operation: Operation
    value: str | None = None


class _Owners:
    """A broker's configuration is its own affair; all other is the same everywhere."""

    again = BROKERS.again

    async def locate(self, client: Client, items: list[ConfigResource], *, anew: bool) -> Mapping[Any, Place]:
        places: dict[ConfigResource, Place] = dict.fromkeys(items)
        own = {item: int(item.name) for item in items if item.type in _OF_A_BROKER and item.name.isdecimal()}
        found = await BROKERS.locate(client, list(own.values()), anew=anew) if own else {}
        places.update({item: found[broker] for item, broker in own.items()})
        return places


_OF_A_BROKER = frozenset({ResourceType.BROKER, ResourceType.BROKER_LOGGER})
_OWNERS = _Owners()


class Configs:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def describe(
        self,
        type: ResourceType,
        name: str,
        keys: Iterable[str] | None = None,
        *,
        documentation: bool = False,
        synonyms: bool = False,
    ) -> dict[str, ConfigEntry]:
        """Every key of a resource by name, or some of them."""
        resource = ConfigResource(type, name)
        call = self.describe_many([resource], keys, documentation=documentation, synonyms=synonyms)
        return (await alone(call))[resource]

    async def describe_many(
        self,
        resources: Iterable[ConfigResource],
        keys: Iterable[str] | None = None,
        *,
        documentation: bool = False,
        synonyms: bool = False,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """The same for many resources at once."""
        wanted = None if keys is None else list(keys)

        def request(some: Iterable[ConfigResource]) -> DescribeConfigsRequest:
            asked = [DescribeConfigsResource(type, name, wanted) for type, name in some]
            return DescribeConfigsRequest(asked, synonyms, documentation)

        return settled(await ask(self._client, _OWNERS, resources, request, _read_entries))

    async def alter(
        self,
        type: ResourceType,
        name: str,
        *,
        set_: Mapping[str, str] | None = None,
        delete: Iterable[str] = (),
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Set some keys and return others to what they inherit; keys that are not named keep their values."""
        changes = [ConfigChange(key, Operation.SET, value) for key, value in (set_ or {}).items()]
        changes += [ConfigChange(key, Operation.DELETE) for key in delete]
        changes += [ConfigChange(key, Operation.APPEND, value) for key, value in (append or {}).items()]
        changes += [ConfigChange(key, Operation.SUBTRACT, value) for key, value in (subtract or {}).items()]
        await alone(self.alter_many({ConfigResource(type, name): changes}, validate_only=validate_only))

    async def alter_many(
        self, changes: Mapping[ConfigResource, Iterable[ConfigChange]], *, validate_only: bool = False
    ) -> None:
        """The same for many resources; for each of them all its changes are made, or none."""
        wanted = {
            resource: AlterConfigsResource(
                resource.type,
                resource.name,
                [AlterableConfig(each.name, each.operation, each.value) for each in some],
            )
            for resource, some in changes.items()
        }

        def request(some: Iterable[ConfigResource]) -> IncrementalAlterConfigsRequest:
            return IncrementalAlterConfigsRequest([wanted[resource] for resource in some], validate_only)

        settled(await ask(self._client, _OWNERS, changes, request, _read_altered))

    async def list_resources(self, types: Iterable[ResourceType] = ()) -> list[ConfigResource]:
        """What has a configuration, of these types or of all that the broker knows, in order."""
        request = ListConfigResourcesRequest([int(type) for type in types])
        return await ask_one(self._client, ANY, None, request, _read_resources)


def _resource(result: Any) -> ConfigResource:
    return ConfigResource(ResourceType(result.resource_type), result.resource_name)


def _read_entries(response: Any) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
    return {
        resource: refusal(result.error_code, f"configuration of {resource}", result.error_message)
        or {found.name: _entry(found) for found in sorted(result.configs, key=lambda found: found.name)}
        for result in response.results
        for resource in (_resource(result),)
    }


def _entry(found: Any) -> ConfigEntry:
    return ConfigEntry(
        found.name,
        found.value,
        ConfigSource(found.config_source),
        found.read_only,
        found.is_sensitive,
        ConfigType(found.config_type),
        found.documentation,
        tuple(ConfigSynonym(each.name, each.value, ConfigSource(each.source)) for each in found.synonyms),
    )


def _read_altered(response: Any) -> dict[ConfigResource, KafkaError | None]:
    return {
        resource: refusal(result.error_code, f"cannot alter {resource}", result.error_message)
        for result in response.responses
        for resource in (_resource(result),)
    }


def _read_resources(response: Any) -> list[ConfigResource]:
    if response.error_code:
        raise refused(response.error_code, "cannot list what has a configuration")
    return sorted(_resource(found) for found in response.config_resources)
