"""Brokers register, serve, fall silent, restart and go; leaderships follow."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.cluster.brokers import SUPPORTED_FEATURES
from barnabas.cluster.events import (
    AllocateProducerIds,
    BrokerHeartbeat,
    BrokerState,
    CreateTopics,
    Event,
    FenceBroker,
    NewTopic,
    ProducerIdBlock,
    RegisterBroker,
    UnregisterBroker,
)
from barnabas.cluster.image import Partition, SupportedFeature
from barnabas.cluster.records import NO_LEADER
from barnabas.core.errors import ErrorCode, KafkaError
from tests.unit.cluster.clusters import TestCluster


def leadership(cluster: TestCluster, topic: str = "orders", number: int = 0) -> tuple[int, tuple[int, ...], int]:
    partition: Partition = cluster.image.topics[topic].partitions[number]
    return partition.leader, partition.isr, partition.leader_epoch


def with_topic(*replicas: int, brokers: int = 3) -> TestCluster:
    cluster = TestCluster(brokers)
    (created,) = cluster.submit(CreateTopics((NewTopic("orders", assignments=((0, replicas),)),)))
    assert created.error is None
    return cluster


def test_a_broker_starts_fenced_and_serves_once_it_has_seen_its_registration() -> None:
    cluster = TestCluster()
    epoch = cluster.register(1)
    assert cluster.image.brokers[1].fenced
    assert cluster.submit(BrokerHeartbeat(1, epoch, epoch)) == BrokerState(False, True, False)
    assert cluster.submit(BrokerHeartbeat(1, epoch, epoch + 1, want_fence=True)) == BrokerState(True, True, False)
    assert cluster.submit(BrokerHeartbeat(1, epoch, epoch + 1)) == BrokerState(True, False, False)
    assert cluster.image.is_alive(1)


def test_the_broker_epoch_is_the_index_of_the_registration_and_rises_with_every_process() -> None:
    cluster = TestCluster(2)
    index = cluster.image.index
    assert cluster.register(1) == index > cluster.image.brokers[2].epoch


def test_a_registration_that_is_repeated_by_the_same_process_changes_nothing() -> None:
    cluster = TestCluster()
    event = RegisterBroker(1, b"i" * 16, (), SUPPORTED_FEATURES)
    first = cluster.submit(event)
    index = cluster.image.index
    assert cluster.submit(event) == first
    assert cluster.image.index == index


def test_a_restart_moves_the_leaderships_of_the_only_replica_under_a_higher_epoch() -> None:
    cluster = with_topic(1, brokers=1)
    assert leadership(cluster) == (1, (1,), 0)
    epoch = cluster.register(1)
    assert leadership(cluster) == (NO_LEADER, (), 1)
    assert cluster.partition().eligible_leader_replicas == (1,), "the last in-sync replica is waited for"
    cluster.submit(BrokerHeartbeat(1, epoch, cluster.image.index))
    assert leadership(cluster) == (1, (1,), 2)


def test_the_leaderships_of_a_silent_broker_go_to_the_next_in_sync_replica() -> None:
    cluster = with_topic(2, 3, 1)
    cluster.submit(FenceBroker(2, cluster.image.brokers[2].epoch))
    assert leadership(cluster) == (3, (3, 1), 1)
    cluster.submit(FenceBroker(1, cluster.image.brokers[1].epoch))
    assert leadership(cluster) == (3, (3,), 1), "the loss of a follower elects nobody"
    cluster.submit(FenceBroker(3, cluster.image.brokers[3].epoch))
    assert leadership(cluster) == (NO_LEADER, (), 2)
    cluster.start(1)
    assert leadership(cluster) == (NO_LEADER, (), 2), "who was not in sync may not lead"
    cluster.start(3)
    assert leadership(cluster) == (3, (3,), 3)


def test_a_broker_that_shuts_down_hands_over_first_and_may_go_then() -> None:
    cluster = with_topic(2, 3)
    epoch = cluster.image.brokers[2].epoch
    leave = BrokerHeartbeat(2, epoch, cluster.image.index, want_shut_down=True)
    assert cluster.submit(leave) == BrokerState(True, False, False)
    assert cluster.image.brokers[2].in_controlled_shutdown
    assert leadership(cluster) == (3, (3,), 1)
    assert cluster.submit(leave) == BrokerState(True, True, True)
    assert cluster.submit(leave) == BrokerState(True, True, True)
    stay = BrokerHeartbeat(2, epoch, cluster.image.index)
    assert cluster.submit(stay).is_fenced, "only a new registration comes back from a shutdown"


def test_an_unregistered_broker_is_gone_with_its_leaderships() -> None:
    cluster = with_topic(1, 2)
    cluster.submit(UnregisterBroker(1))
    assert 1 not in cluster.image.brokers
    assert leadership(cluster) == (2, (2,), 1)
    with pytest.raises(KafkaError, match="broker 1 is not registered") as caught:
        cluster.submit(UnregisterBroker(1))
    assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_stale_broker_epoch_is_refused_everywhere() -> None:
    cluster = TestCluster(1)
    old = cluster.image.brokers[1].epoch
    cluster.start(1)
    events: list[Event[Any]] = [BrokerHeartbeat(1, old, 100), FenceBroker(1, old), AllocateProducerIds(1, old)]
    for event in events:
        with pytest.raises(KafkaError, match=f"not {old}: it was registered again") as caught:
            cluster.submit(event)
        assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_producer_ids_are_handed_out_in_blocks_of_a_thousand() -> None:
    cluster = TestCluster(2)
    blocks = [cluster.submit(AllocateProducerIds(b, cluster.image.brokers[b].epoch)) for b in (1, 2, 1)]
    assert blocks == [ProducerIdBlock(0, 1000), ProducerIdBlock(1000, 1000), ProducerIdBlock(2000, 1000)]


def register_with(cluster: TestCluster, broker_id: int, lowest: int, highest: int) -> None:
    features = {"some.feature": SupportedFeature(lowest, highest)}
    cluster.submit(RegisterBroker(broker_id, cluster.rng.randbytes(16), (), features))


def test_a_feature_stands_where_every_broker_supports_it_and_never_goes_back() -> None:
    cluster = TestCluster()
    register_with(cluster, 1, 1, 3)
    assert cluster.image.features == {"some.feature": 3}
    register_with(cluster, 2, 1, 5)
    assert cluster.image.features == {"some.feature": 3}
    register_with(cluster, 1, 1, 4)
    assert cluster.image.features == {"some.feature": 4}
    with pytest.raises(KafkaError, match=r"broker 3 supports some\.feature 1 to 2, but the cluster is at 4") as caught:
        register_with(cluster, 3, 1, 2)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(KafkaError, match="5 to 6, but the cluster is at 4"):
        register_with(cluster, 3, 5, 6)


def test_a_new_cluster_has_the_metadata_version_of_its_records() -> None:
    assert TestCluster(1).image.features == {
        "metadata.version": 30,
        "group.version": 1,
        "transaction.version": 2,
        "eligible.leader.replicas.version": 1,
    }
