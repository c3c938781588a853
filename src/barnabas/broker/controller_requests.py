"""What a broker asks a controller that is another one: events as requests, responses as replies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from barnabas.cluster import events as e
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages import (
    k19_create_topics,
    k62_broker_registration,
    k63_broker_heartbeat,
    k67_allocate_producer_ids,
)


class Speech(NamedTuple):
    """How an event is asked, in which version, and how the answer is read; KafkaError if the event is refused."""

    version: int
    request: Callable[[Any, str], Any]
    """Takes the event and the cluster's id."""
    reply: Callable[[Any], Any]


def _registration(event: e.RegisterBroker, cluster_id: str) -> k62_broker_registration.BrokerRegistrationRequest:
    return k62_broker_registration.BrokerRegistrationRequest(
        event.broker_id,
        cluster_id,
        event.incarnation_id,
        [k62_broker_registration.Listener(*endpoint) for endpoint in event.endpoints],
        [k62_broker_registration.Feature(name, *levels) for name, levels in event.features.items()],
        event.rack,
        log_dirs=list(event.log_dirs),
        previous_broker_epoch=event.previous_broker_epoch,
    )


def _registered(response: k62_broker_registration.BrokerRegistrationResponse) -> e.BrokerEpoch:
    _check(response.error_code, "registration")
    return e.BrokerEpoch(response.broker_epoch)


def _heartbeat(event: e.BrokerHeartbeat, cluster_id: str) -> k63_broker_heartbeat.BrokerHeartbeatRequest:
    return k63_broker_heartbeat.BrokerHeartbeatRequest(
        event.broker_id, event.broker_epoch, event.applied_index, event.want_fence, event.want_shut_down
    )


def _state(response: k63_broker_heartbeat.BrokerHeartbeatResponse) -> e.BrokerState:
    _check(response.error_code, "heartbeat")
    return e.BrokerState(response.is_caught_up, response.is_fenced, response.should_shut_down)


def _producer_ids(
    event: e.AllocateProducerIds, cluster_id: str
) -> k67_allocate_producer_ids.AllocateProducerIdsRequest:
    return k67_allocate_producer_ids.AllocateProducerIdsRequest(event.broker_id, event.broker_epoch)


def _block(response: k67_allocate_producer_ids.AllocateProducerIdsResponse) -> e.ProducerIdBlock:
    _check(response.error_code, "wish for producer ids")
    return e.ProducerIdBlock(response.producer_id_start, response.producer_id_len)


def _new_topics(event: e.CreateTopics, cluster_id: str) -> k19_create_topics.CreateTopicsRequest:
    return k19_create_topics.CreateTopicsRequest(
        [
            k19_create_topics.CreatableTopic(
                topic.name,
                topic.num_partitions,
                topic.replication_factor,
                [k19_create_topics.CreatableReplicaAssignment(index, list(ids)) for index, ids in topic.assignments],
                [k19_create_topics.CreatableTopicConfig(name, value) for name, value in topic.configs.items()],
            )
            for topic in event.topics
        ],
        validate_only=event.validate_only,
    )


def _created_topics(response: k19_create_topics.CreateTopicsResponse) -> tuple[e.CreatedTopic, ...]:
    return tuple(
        e.CreatedTopic(topic.name, error=e.Failure(ErrorCode(topic.error_code), topic.error_message or ""))
        if topic.error_code
        else e.CreatedTopic(topic.name, topic.topic_id, topic.num_partitions, topic.replication_factor)
        for topic in response.topics
    )


def _check(error_code: int, what: str) -> None:
    if error_code:
        code = ErrorCode(error_code)
        raise KafkaError(code, f"the controller refuses this broker's {what}: {code.name}")


SPEECHES: dict[type, Speech] = {
    e.RegisterBroker: Speech(4, _registration, _registered),
    e.BrokerHeartbeat: Speech(2, _heartbeat, _state),
    e.AllocateProducerIds: Speech(0, _producer_ids, _block),
    e.CreateTopics: Speech(7, _new_topics, _created_topics),
}
