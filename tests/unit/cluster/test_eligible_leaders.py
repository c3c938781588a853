"""Eligible leader replicas: who is known to have everything that was acknowledged, and who leads by it (KIP-966)."""

from __future__ import annotations

import pytest

from barnabas.cluster.events import (
    PREFERRED_ELECTION,
    UNCLEAN_ELECTION,
    AlterConfigs,
    AlterReassignments,
    BrokerHeartbeat,
    BrokerState,
    ElectLeaders,
    Reassignment,
    RegisterBroker,
    UnregisterBroker,
)
from barnabas.cluster.image import BROKER_RESOURCE, TOPIC_RESOURCE, ConfigResource
from barnabas.cluster.records import NO_LEADER
from tests.unit.cluster.clusters import TestCluster


def with_min_isr_2() -> TestCluster:
    cluster = TestCluster(4)
    cluster.create(1, 2, 3, min_insync_replicas="2")
    return cluster


def state(cluster: TestCluster) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Leader, in-sync replicas, eligible ones, last known leader."""
    partition = cluster.partition()
    return partition.leader, partition.isr, partition.eligible_leader_replicas, partition.last_known_elr


def configure(cluster: TestCluster, resource_type: int, name: str, **values: str) -> None:
    wanted = {**cluster.image.config(resource_type, name), **{k.replace("_", "."): v for k, v in values.items()}}
    settings = tuple(wanted.items())
    (altered,) = cluster.submit(AlterConfigs(((ConfigResource(resource_type, name), settings),)))
    assert altered.error is None


def test_who_leaves_below_the_minimum_stays_eligible_until_enough_are_in_sync_again() -> None:
    cluster = with_min_isr_2()
    cluster.submit(cluster.isr_change(1, 2))
    assert state(cluster) == (1, (1, 2), (), ())
    cluster.submit(cluster.isr_change(1))
    assert state(cluster) == (1, (1,), (2,), ())
    cluster.submit(cluster.isr_change(1, 3))
    assert state(cluster) == (1, (1, 3), (), ()), "the watermark moves again, and 2 may miss what it passes"


def test_the_minimum_is_never_above_the_number_of_replicas() -> None:
    cluster = TestCluster(2)
    cluster.create(1, 2, min_insync_replicas="5")
    cluster.submit(cluster.isr_change(1))
    assert state(cluster) == (1, (1,), (2,), ())
    cluster.submit(cluster.isr_change(1, 2))
    assert state(cluster) == (1, (1, 2), (), ())


def test_when_the_last_in_sync_replica_goes_an_eligible_one_leads_cleanly() -> None:
    cluster = with_min_isr_2()
    cluster.submit(cluster.isr_change(1, 2))
    cluster.submit(cluster.isr_change(1))
    cluster.fence(1)
    assert state(cluster) == (2, (2,), (1,), ())
    assert cluster.partition().leader_recovery_state == 0
    assert cluster.outcome.unclean_elections == 0


def test_who_is_in_sync_leads_before_who_is_only_eligible() -> None:
    cluster = TestCluster(3)
    cluster.create(1, 3, 2, min_insync_replicas="3")
    cluster.submit(cluster.isr_change(1, 2))
    assert state(cluster) == (1, (1, 2), (3,), ())
    cluster.fence(1)
    assert state(cluster) == (2, (2,), (1, 3), ())


def test_the_last_replica_standing_that_restarts_uncleanly_leaves_the_partition_to_the_eligible() -> None:
    cluster = with_min_isr_2()
    cluster.submit(cluster.isr_change(1, 2))
    cluster.fence(2)
    assert state(cluster) == (1, (1,), (2,), ())
    cluster.start(1, is_clean=False)
    assert state(cluster) == (NO_LEADER, (), (2,), (1,)), "2 has everything; 1 does not any more, 3 never had"
    cluster.start(2)
    assert state(cluster) == (2, (2,), (), ())
    assert cluster.outcome.unclean_elections == 0


def test_a_clean_restart_keeps_its_claim() -> None:
    cluster = with_min_isr_2()
    cluster.fence(3, 2, 1)
    assert state(cluster) == (NO_LEADER, (), (1, 2), (1,))
    cluster.register(1)
    cluster.register(2)
    assert state(cluster) == (NO_LEADER, (), (1, 2), (1,))
    cluster.start(2)
    assert state(cluster) == (2, (2,), (1,), ())


def test_a_previous_epoch_that_is_not_the_last_one_is_no_clean_restart() -> None:
    cluster = with_min_isr_2()
    cluster.fence(3, 2, 1)
    first = cluster.image.brokers[1].epoch
    cluster.register(1)
    again = RegisterBroker(1, b"i" * 16, (), dict(cluster.image.brokers[1].features), previous_broker_epoch=first)
    cluster.submit(again)
    assert state(cluster) == (NO_LEADER, (), (2,), (1,))


def test_a_restart_takes_leaderships_away_under_a_higher_epoch_even_if_it_was_never_noticed() -> None:
    cluster = with_min_isr_2()
    cluster.register(1)
    assert state(cluster) == (2, (2, 3), (), ())
    assert cluster.partition().leader_epoch == 1


def all_restarted_uncleanly() -> TestCluster:
    cluster = with_min_isr_2()
    cluster.submit(ElectLeaders(PREFERRED_ELECTION))
    cluster.fence(1)
    assert cluster.partition().leader == 2
    for broker in (3, 2, 1):
        cluster.start(broker, is_clean=False)
    return cluster


def test_when_nobody_is_eligible_the_partition_waits_for_the_operator() -> None:
    cluster = all_restarted_uncleanly()
    assert state(cluster) == (NO_LEADER, (), (), (2,)), "all live, but any of them may have lost records"
    assert cluster.outcome.unclean_elections == 0


def test_of_those_that_may_have_lost_records_the_last_known_leader_is_the_best() -> None:
    cluster = all_restarted_uncleanly()
    configure(cluster, TOPIC_RESOURCE, "orders", unclean_leader_election_enable="true")
    assert state(cluster) == (2, (2,), (), ())
    assert cluster.partition().leader_recovery_state == 1
    assert cluster.outcome.unclean_elections == 1
    assert cluster.outcome.warnings == ("unclean election of leaders for 1 partitions: orders-0; records may be lost",)


def test_an_operator_may_ask_for_the_election_instead() -> None:
    cluster = all_restarted_uncleanly()
    (elected,) = cluster.submit(ElectLeaders(UNCLEAN_ELECTION, (("orders", 0),)))
    assert elected.error is None
    assert state(cluster) == (2, (2,), (), ())


def test_the_only_replica_leads_again_after_an_unclean_restart_and_it_is_told() -> None:
    cluster = TestCluster(1)
    cluster.create(1)
    cluster.start(1, is_clean=False)
    assert state(cluster) == (1, (1,), (), ())
    assert cluster.outcome.unclean_elections == 1


def test_a_replica_that_is_being_added_is_no_choice_where_the_only_one_restarts_uncleanly() -> None:
    cluster = TestCluster(2)
    cluster.create(1)
    cluster.submit(AlterReassignments((Reassignment("orders", 0, (2,)),)))
    cluster.register(1, is_clean=False)
    assert cluster.partition().leader == NO_LEADER
    cluster.submit(BrokerHeartbeat(1, cluster.image.brokers[1].epoch, cluster.image.index))
    assert cluster.partition().leader == 1


def test_an_operator_who_prefers_availability_gets_any_live_replica() -> None:
    cluster = TestCluster(3)
    cluster.create(1, 2, 3, unclean_leader_election_enable="true")
    cluster.submit(cluster.isr_change(1))
    cluster.fence(2, 1)
    assert state(cluster) == (3, (3,), (), ())
    assert cluster.outcome.unclean_elections == 1


def test_a_live_eligible_replica_comes_before_any_other_even_where_unclean_elections_are_allowed() -> None:
    cluster = TestCluster(3)
    cluster.create(1, 2, 3, unclean_leader_election_enable="true", min_insync_replicas="2")
    cluster.submit(cluster.isr_change(1, 3))
    cluster.submit(cluster.isr_change(1))
    cluster.fence(1)
    assert state(cluster) == (3, (3,), (1,), ())
    assert cluster.outcome.unclean_elections == 0


@pytest.mark.parametrize(("resource", "name"), [(TOPIC_RESOURCE, "orders"), (BROKER_RESOURCE, "")])
def test_allowing_unclean_elections_gives_leaders_at_once(resource: int, name: str) -> None:
    cluster = TestCluster(2)
    cluster.create(1, 2)
    cluster.submit(cluster.isr_change(1))
    cluster.fence(1)
    assert state(cluster) == (NO_LEADER, (), (1,), (1,))
    configure(cluster, resource, name, unclean_leader_election_enable="true")
    assert state(cluster) == (2, (2,), (), ())
    assert cluster.outcome.unclean_elections == 1


@pytest.mark.parametrize("minimum", ["1", "3"])
def test_another_minimum_forgets_who_was_eligible(minimum: str) -> None:
    cluster = with_min_isr_2()
    cluster.submit(cluster.isr_change(1))
    assert state(cluster) == (1, (1,), (2, 3), ())
    configure(cluster, TOPIC_RESOURCE, "orders", min_insync_replicas=minimum)
    assert state(cluster) == (1, (1,), (), ())


def test_the_default_minimum_concerns_the_topics_that_follow_it() -> None:
    cluster = TestCluster(3, min_insync_replicas="2")
    cluster.create(1, 2, 3)
    cluster.create(1, 2, 3, name="own", min_insync_replicas="2")
    cluster.submit(cluster.isr_change(1))
    cluster.submit(cluster.isr_change(1, name="own"))
    configure(cluster, BROKER_RESOURCE, "", min_insync_replicas="1")
    assert cluster.partition().eligible_leader_replicas == ()
    assert cluster.partition("own").eligible_leader_replicas == (2, 3)


def test_a_configuration_of_something_else_forgets_nobody() -> None:
    cluster = TestCluster(3, min_insync_replicas="2")
    cluster.create(1, 2, 3)
    cluster.submit(cluster.isr_change(1))
    configure(cluster, TOPIC_RESOURCE, "orders", retention_ms="1000")
    assert state(cluster) == (1, (1,), (2, 3), ())


def test_without_a_leader_another_minimum_forgets_nobody() -> None:
    cluster = with_min_isr_2()
    cluster.fence(3, 2, 1)
    configure(cluster, TOPIC_RESOURCE, "orders", min_insync_replicas="1")
    assert state(cluster) == (NO_LEADER, (), (1, 2), (1,)), "no watermark has moved since"
    cluster.start(2)
    assert state(cluster) == (2, (2,), (), ())


def test_a_broker_that_is_unregistered_is_not_waited_for() -> None:
    cluster = with_min_isr_2()
    cluster.fence(3, 2, 1)
    cluster.submit(UnregisterBroker(2))
    assert state(cluster) == (NO_LEADER, (), (1,), (1,))
    cluster.start(2)
    assert state(cluster) == (NO_LEADER, (), (1,), (1,)), "who registers anew may have new disks"


def test_a_controlled_shutdown_of_the_only_replica_is_a_clean_one() -> None:
    cluster = TestCluster(1)
    cluster.create(1)
    leave = BrokerHeartbeat(1, cluster.image.brokers[1].epoch, cluster.image.index, want_shut_down=True)
    assert cluster.submit(leave) == BrokerState(True, False, False)
    assert cluster.submit(leave) == BrokerState(True, True, True)
    assert state(cluster) == (NO_LEADER, (), (1,), (1,))
    cluster.start(1)
    assert state(cluster) == (1, (1,), (), ())
    assert cluster.outcome.unclean_elections == 0
