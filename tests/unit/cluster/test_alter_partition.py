"""AlterPartition: which leader may change the in-sync replicas, and to whom."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.cluster.events import AlteredPartition, BrokerHeartbeat, UnregisterBroker
from barnabas.cluster.records import NO_LEADER
from barnabas.core.errors import ErrorCode, KafkaError
from tests.unit.cluster.clusters import TestCluster


def three_replicas() -> TestCluster:
    cluster = TestCluster(4)
    cluster.create(1, 2, 3)
    return cluster


def test_a_leader_shrinks_and_grows_the_in_sync_replicas_under_the_same_leader_epoch() -> None:
    cluster = three_replicas()
    assert cluster.submit(cluster.isr_change(1, 2)) == AlteredPartition(1, 0, (1, 2), 1)
    assert cluster.partition().isr == (1, 2)
    assert cluster.submit(cluster.isr_change(1, 2, 3)) == AlteredPartition(1, 0, (1, 2, 3), 2)


def test_what_is_so_already_is_answered_without_a_record() -> None:
    cluster = three_replicas()
    index = cluster.image.index
    assert cluster.submit(cluster.isr_change(1, 2, 3)) == AlteredPartition(1, 0, (1, 2, 3), 0)
    assert cluster.image.index == index


REFUSED: dict[str, tuple[tuple[int, ...], dict[str, Any], ErrorCode]] = {
    "a broker epoch that is over": ((1, 2), {"broker_epoch": 0}, ErrorCode.STALE_BROKER_EPOCH),
    "a broker that is not registered": ((1, 2), {"broker_id": 9}, ErrorCode.BROKER_ID_NOT_REGISTERED),
    "a topic that is not there": ((1, 2), {"topic_id": b"?" * 16}, ErrorCode.UNKNOWN_TOPIC_ID),
    "a partition that is not there": ((1, 2), {"partition": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "a negative partition": ((1, 2), {"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "a leader epoch of the future": ((1, 2), {"leader_epoch": 3}, ErrorCode.NOT_CONTROLLER),
    "a partition epoch of the future": ((1, 2), {"partition_epoch": 5}, ErrorCode.NOT_CONTROLLER),
    "a leader epoch of the past": ((1, 2), {"leader_epoch": 1}, ErrorCode.FENCED_LEADER_EPOCH),
    "a partition epoch of the past": ((1, 2), {"partition_epoch": 2}, ErrorCode.INVALID_UPDATE_VERSION),
    "both epochs of the past": ((1, 2), {"leader_epoch": 1, "partition_epoch": 2}, ErrorCode.FENCED_LEADER_EPOCH),
    "a replica twice": ((1, 2, 2), {}, ErrorCode.INVALID_REQUEST),
    "a broker that is no replica": ((1, 4), {}, ErrorCode.INVALID_REQUEST),
    "others without the leader": ((2, 3), {}, ErrorCode.INVALID_REQUEST),
    "an unknown recovery state": ((1,), {"leader_recovery_state": 2}, ErrorCode.INVALID_REQUEST),
    "recovering with others": ((1, 2), {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
    "recovering again": ((1,), {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
    "a member's epoch of the past": ((1, 2), {"new_isr": ((1, -1), (2, 1))}, ErrorCode.INELIGIBLE_REPLICA),
}


@pytest.mark.parametrize(("isr", "changes", "code"), REFUSED.values(), ids=list(REFUSED))
def test_refusals_change_nothing(isr: tuple[int, ...], changes: dict[str, Any], code: ErrorCode) -> None:
    cluster = three_replicas()
    cluster.fence(1)
    cluster.start(1)
    cluster.submit(cluster.isr_change(2, 3, 1))
    cluster.fence(2, 3)
    cluster.start(2)
    cluster.start(3)  # leader 1, leader epoch 2, partition epoch 4
    before = cluster.image
    assert (cluster.partition().leader_epoch, cluster.partition().partition_epoch) == (2, 4)
    with pytest.raises(KafkaError) as caught:
        cluster.submit(cluster.isr_change(*isr, **changes))
    assert caught.value.code is code
    assert cluster.image is before


def test_only_the_leader_may_ask() -> None:
    cluster = three_replicas()
    with pytest.raises(KafkaError, match="broker 2 cannot alter orders-0: the leader is 1") as caught:
        cluster.submit(cluster.isr_change(1, 2, broker_id=2, broker_epoch=cluster.image.brokers[2].epoch))
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def fenced(cluster: TestCluster) -> None:
    cluster.fence(3)


def shutting_down(cluster: TestCluster) -> None:
    cluster.create(3, name="held")  # it leads something, so that it may not go yet
    cluster.submit(BrokerHeartbeat(3, cluster.image.brokers[3].epoch, cluster.image.index, want_shut_down=True))
    assert not cluster.image.brokers[3].fenced


def unregistered(cluster: TestCluster) -> None:
    cluster.submit(UnregisterBroker(3))


@pytest.mark.parametrize("happens", [fenced, shutting_down, unregistered])
def test_who_cannot_serve_cannot_be_in_sync(happens: Any) -> None:
    cluster = three_replicas()
    happens(cluster)
    assert cluster.partition().isr == (1, 2)
    with pytest.raises(KafkaError, match="broker 3 is") as caught:
        cluster.submit(cluster.isr_change(1, 2, 3))
    assert caught.value.code is ErrorCode.INELIGIBLE_REPLICA


def test_a_follower_that_restarts_while_the_leader_asks_is_not_taken_for_its_former_process() -> None:
    cluster = three_replicas()
    cluster.submit(cluster.isr_change(1, 2))
    asked = cluster.isr_change(1, 2, 3)
    cluster.start(3)
    with pytest.raises(KafkaError, match="broker 3 has epoch") as caught:
        cluster.submit(asked)
    assert caught.value.code is ErrorCode.INELIGIBLE_REPLICA
    assert cluster.submit(cluster.isr_change(1, 2, 3)).isr == (1, 2, 3)


def test_a_leader_that_was_elected_uncleanly_recovers_alone_first() -> None:
    cluster = TestCluster(3)
    cluster.create(1, 2, 3, unclean_leader_election_enable="true")
    cluster.submit(cluster.isr_change(1))
    cluster.fence(1)
    assert (cluster.partition().leader, cluster.partition().leader_recovery_state) == (2, 1)
    cluster.submit(cluster.isr_change(2, leader_recovery_state=0))
    assert cluster.partition().leader_recovery_state == 0
    assert cluster.submit(cluster.isr_change(2, 3)).isr == (2, 3)


def test_a_leader_that_leaves_itself_out_gives_way_to_another_and_is_not_relied_on() -> None:
    cluster = TestCluster(3)
    cluster.create(1, 2, 3, min_insync_replicas="3")
    altered = cluster.submit(cluster.isr_change(2, 3))
    assert (altered.leader, altered.leader_epoch, altered.isr) == (2, 1, (2, 3))
    assert cluster.partition().eligible_leader_replicas == (), "what was on the failed disk may be lost"
    assert cluster.outcome.unclean_elections == 0


def test_a_follower_may_leave_alone_and_nothing_it_has_asked_for_before_brings_it_back() -> None:
    cluster = three_replicas()
    own: dict[str, Any] = {"broker_id": 2, "broker_epoch": cluster.image.brokers[2].epoch}
    leader_still_counts_it = cluster.isr_change(1, 2, 3)
    assert cluster.submit(cluster.isr_change(1, 3, **own)) == AlteredPartition(1, 1, (1, 3), 1)
    with pytest.raises(KafkaError) as caught:
        cluster.submit(leader_still_counts_it)
    assert caught.value.code is ErrorCode.FENCED_LEADER_EPOCH
    assert cluster.submit(cluster.isr_change(1, 3, **own)).leader_epoch == 2, "also when it was out already"
    with pytest.raises(KafkaError, match="the leader is 1"):
        cluster.submit(cluster.isr_change(1, **own))


def test_an_eligible_replica_takes_over_from_a_leader_that_was_in_sync_alone() -> None:
    cluster = TestCluster(2)
    cluster.create(1, 2, min_insync_replicas="2")
    cluster.submit(cluster.isr_change(1))
    assert cluster.partition().eligible_leader_replicas == (2,)
    altered = cluster.submit(cluster.isr_change())
    assert (altered.leader, altered.isr) == (2, (2,))
    assert cluster.outcome.unclean_elections == 0


def test_who_has_lost_its_end_is_not_eligible_any_more_though_it_is_fenced() -> None:
    cluster = TestCluster(2)
    cluster.create(1, 2, min_insync_replicas="2")
    cluster.fence(2, 1)
    assert cluster.partition().eligible_leader_replicas == (1, 2)
    epoch = cluster.register(1)
    cluster.submit(cluster.isr_change(broker_id=1, broker_epoch=epoch))
    assert cluster.partition().eligible_leader_replicas == (2,)
    cluster.submit(BrokerHeartbeat(1, epoch, cluster.image.index))
    assert cluster.partition().leader == NO_LEADER
    cluster.start(2)
    assert (cluster.partition().leader, cluster.partition().isr) == (2, (2,))


@pytest.mark.parametrize("replicas", [(1,), (1, 2)])
def test_a_leader_that_nobody_can_follow_leaves_the_partition_without_one(replicas: tuple[int, ...]) -> None:
    cluster = TestCluster(2)
    cluster.create(*replicas)
    cluster.submit(cluster.isr_change(1))
    altered = cluster.submit(cluster.isr_change())
    assert (altered.leader, altered.isr) == (NO_LEADER, ())
    assert cluster.partition().last_known_elr == (1,)
    cluster.start(1, is_clean=False)
    assert cluster.partition().leader == (1 if replicas == (1,) else NO_LEADER)
