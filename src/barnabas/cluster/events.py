"""What a controller is asked, and what it answers: plain values.

An event that is about several things answers for each of them, in the order of the request; what went wrong with one
is a `Failure` in its place and leaves the others alone. An event about one thing raises `KafkaError` instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Generic, TypeVar

from barnabas.cluster.image import ConfigResource, Endpoint, SupportedFeature
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import ErrorCode
from barnabas.core.ids import ZERO_UUID

Reply = TypeVar("Reply", covariant=True)


class Event(Generic[Reply]):
    """What may be submitted to the metadata log; `Reply` is what comes back."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Failure:
    code: ErrorCode
    message: str


# Brokers


@dataclass(frozen=True, slots=True)
class BrokerEpoch:
    epoch: int


@dataclass(frozen=True, slots=True)
class RegisterBroker(Event[BrokerEpoch]):
    """A process of a broker has started; it stays fenced until its heartbeat asks otherwise.

    `previous_broker_epoch` is that of the process before it, if the broker is sure that all this one had written is
    still there. Without it the restart counts as unclean, and the broker's replicas as no longer complete.
    """

    broker_id: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, SupportedFeature]
    rack: str | None = None
    log_dirs: tuple[bytes, ...] = ()
    previous_broker_epoch: int = -1


@dataclass(frozen=True, slots=True)
class BrokerState:
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


@dataclass(frozen=True, slots=True)
class BrokerHeartbeat(Event[BrokerState]):
    """What a broker says; `applied_index` is that of its image. Who has not seen its registration cannot serve."""

    broker_id: int
    broker_epoch: int
    applied_index: int
    want_fence: bool = False
    want_shut_down: bool = False


@dataclass(frozen=True, slots=True)
class FenceBroker(Event[None]):
    """A broker has been silent for too long."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class UnregisterBroker(Event[None]):
    """A broker that will not come back."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class AllocateProducerIds(Event[ProducerIdBlock]):
    """A block that nobody else gets."""

    broker_id: int
    broker_epoch: int


# Topics


@dataclass(frozen=True, slots=True)
class NewTopic:
    """-1 stands for the configured default. `assignments` pairs partitions with brokers, if the caller chooses them."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """`configs` is what was set on the topic. The id is zero where nothing was created."""

    name: str
    topic_id: bytes = ZERO_UUID
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    error: Failure | None = None


@dataclass(frozen=True, slots=True)
class CreateTopics(Event[tuple[CreatedTopic, ...]]):
    topics: tuple[NewTopic, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class TopicReference:
    """A topic by its name or by its id, never by both."""

    name: str | None = None
    topic_id: bytes = ZERO_UUID


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    name: str | None
    topic_id: bytes
    error: Failure | None = None


@dataclass(frozen=True, slots=True)
class DeleteTopics(Event[tuple[DeletedTopic, ...]]):
    topics: tuple[TopicReference, ...]


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """`count` is the new total; `assignments` places the added ones, if the caller chooses."""

    topic: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class CreatedPartitions:
    topic: str
    error: Failure | None = None


@dataclass(frozen=True, slots=True)
class CreatePartitions(Event[tuple[CreatedPartitions, ...]]):
    topics: tuple[NewPartitions, ...]
    validate_only: bool = False


# Partitions


@dataclass(frozen=True, slots=True)
class AlteredPartition:
    """The partition as it is now. The leader may be another one, if the change has completed a reassignment."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    leader_recovery_state: int = 0


@dataclass(frozen=True, slots=True)
class AlterPartition(Event[AlteredPartition]):
    """A leader asks for other in-sync replicas: pairs of broker id and broker epoch, which is -1 where not known."""

    broker_id: int
    broker_epoch: int
    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    new_isr: tuple[tuple[int, int], ...]
    leader_recovery_state: int = 0


PREFERRED_ELECTION = 0
UNCLEAN_ELECTION = 1


@dataclass(frozen=True, slots=True)
class ElectedLeader:
    topic: str
    partition: int
    error: Failure | None = None


@dataclass(frozen=True, slots=True)
class ElectLeaders(Event[tuple[ElectedLeader, ...]]):
    """An operator's wish, for some partitions or for all; of all, those that need no election are not told of."""

    election_type: int
    partitions: tuple[tuple[str, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class BalanceLeaders(Event[int]):
    """Give leaderships back to the preferred replicas of brokers that miss more than this share; tells how many."""

    imbalance_percentage: int = 10


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The brokers that are to hold a partition, the preferred leader first; None cancels what is under way."""

    topic: str
    partition: int
    replicas: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class AlteredReassignment:
    topic: str
    partition: int
    error: Failure | None = None


@dataclass(frozen=True, slots=True)
class AlterReassignments(Event[tuple[AlteredReassignment, ...]]):
    reassignments: tuple[Reassignment, ...]
    allow_replication_factor_change: bool = True


# Configurations


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One key: `operation` is that of IncrementalAlterConfigs, by its number on the wire."""

    name: str
    operation: int
    value: str | None


@dataclass(frozen=True, slots=True)
class AlteredConfig:
    resource: ConfigResource
    error: Failure | None = None


@dataclass(frozen=True, slots=True)
class IncrementalAlterConfigs(Event[tuple[AlteredConfig, ...]]):
    """Change some keys of each resource."""

    resources: tuple[tuple[ConfigResource, tuple[ConfigChange, ...]], ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AlterConfigs(Event[tuple[AlteredConfig, ...]]):
    """Replace everything that is set on each resource."""

    resources: tuple[tuple[ConfigResource, tuple[tuple[str, str | None], ...]], ...]
    validate_only: bool = False
