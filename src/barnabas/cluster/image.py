"""The cluster's metadata as it is now: an immutable image, the fold of every record so far.

Nobody changes an image; `fold.apply` makes the next one out of it and some records, and shares what did not change, so
that holding on to an older one costs little and two of them can be compared by identity (`delta.changes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, NamedTuple

from barnabas.core.dataclass import dataclass
from barnabas.core.ids import ZERO_UUID

NOTHING: Mapping[Any, Any] = MappingProxyType({})


class Endpoint(NamedTuple):
    name: str
    host: str
    port: int
    security_protocol: int


class SupportedFeature(NamedTuple):
    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True)
class Broker:
    """A registration. `epoch` is the index in the metadata log at which it was made, and tells incarnations apart."""

    id: int
    epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, SupportedFeature]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[bytes, ...]
    cordoned_log_dirs: tuple[bytes, ...] | None

    @property
    def may_lead(self) -> bool:
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def new_replica_directory(self) -> bytes:
        """Where a replica goes that comes to this broker; zero where the broker has a choice, and makes it."""
        return self.log_dirs[0] if len(self.log_dirs) == 1 else ZERO_UUID

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener), None)


@dataclass(frozen=True, slots=True)
class Partition:
    """`replicas` are in order of preference; `leader` is -1 while there is none."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    directories: tuple[bytes, ...] = ()
    leader_recovery_state: int = 0
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: bytes
    partitions: tuple[Partition, ...]


class ConfigResource(NamedTuple):
    """What a configuration belongs to; the broker with the empty name stands for all brokers."""

    type: int
    name: str


INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
ELR_FEATURE = "eligible.leader.replicas.version"
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4


class ScramKey(NamedTuple):
    user: str
    mechanism: int


class ScramCredential(NamedTuple):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class AccessControlEntry(NamedTuple):
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


Entity = frozenset[tuple[str, str | None]]
"""To whom a quota applies: types and names, where None is the default of that type."""


@dataclass(frozen=True, slots=True)
class Image:
    """`index` is that of the next record: everything below it is in here."""

    index: int = 0
    brokers: Mapping[int, Broker] = field(default_factory=lambda: NOTHING)
    topics: Mapping[str, Topic] = field(default_factory=lambda: NOTHING)
    topic_names: Mapping[bytes, str] = field(default_factory=lambda: NOTHING)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=lambda: NOTHING)
    features: Mapping[str, int] = field(default_factory=lambda: NOTHING)
    next_producer_id: int = 0
    quotas: Mapping[Entity, Mapping[str, float]] = field(default_factory=lambda: NOTHING)
    acls: Mapping[bytes, AccessControlEntry] = field(default_factory=lambda: NOTHING)
    scram: Mapping[ScramKey, ScramCredential] = field(default_factory=lambda: NOTHING)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic: str, partition: int) -> Partition | None:
        found = self.topics.get(topic)
        return found.partitions[partition] if found and 0 <= partition < len(found.partitions) else None

    def is_alive(self, broker_id: int) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """What was set on the resource itself."""
        return self.configs.get(ConfigResource(resource_type, name), NOTHING)


EMPTY = Image()
