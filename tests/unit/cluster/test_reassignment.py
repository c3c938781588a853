"""Reassignments: partitions move to other brokers, step by step, and can turn back."""

from __future__ import annotations

import pytest

from barnabas.cluster.events import AlterReassignments, CreatePartitions, NewPartitions, Reassignment
from barnabas.cluster.image import Partition
from barnabas.cluster.reassignment import OngoingReassignment, list_reassignments
from barnabas.cluster.records import NO_LEADER
from barnabas.core.errors import ErrorCode
from tests.unit.cluster.clusters import TestCluster, check_consistency


def reassign(cluster: TestCluster, *replicas: int, allow: bool = True) -> ErrorCode | None:
    event = AlterReassignments((Reassignment("orders", 0, replicas),), allow)
    (result,) = cluster.submit(event)
    return result.error.code if result.error else None


def cancel(cluster: TestCluster) -> ErrorCode | None:
    (result,) = cluster.submit(AlterReassignments((Reassignment("orders", 0, None),)))
    return result.error.code if result.error else None


def moving(cluster: TestCluster) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    partition: Partition = cluster.partition()
    return partition.replicas, partition.adding_replicas, partition.removing_replicas


def with_topic(*replicas: int, **configs: str) -> TestCluster:
    cluster = TestCluster(6)
    cluster.create(*replicas, **configs)
    return cluster


def test_a_partition_moves_when_every_new_replica_is_in_sync() -> None:
    cluster = with_topic(1, 2, 3)
    assert reassign(cluster, 4, 5, 6) is None
    assert moving(cluster) == ((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))
    assert list(list_reassignments(cluster.image)) == [
        OngoingReassignment("orders", 0, (4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))
    ]
    assert (cluster.partition().leader, cluster.partition().leader_epoch) == (1, 0)
    cluster.submit(cluster.isr_change(1, 2, 3, 4, 5))
    assert cluster.partition().removing_replicas == (1, 2, 3)
    done = cluster.submit(cluster.isr_change(1, 2, 3, 4, 5, 6))
    assert (done.leader, done.leader_epoch, done.isr) == (4, 1, (4, 5, 6))
    assert moving(cluster) == ((4, 5, 6), (), ())
    assert cluster.partition().directories == tuple(bytes([broker]) * 16 for broker in (4, 5, 6))
    assert list(list_reassignments(cluster.image)) == []


def test_a_leader_that_stays_leads_on_under_a_higher_epoch_when_others_go() -> None:
    cluster = with_topic(1, 2)
    reassign(cluster, 3, 1)
    done = cluster.submit(cluster.isr_change(1, 2, 3))
    assert (done.leader, done.leader_epoch, done.isr) == (1, 1, (1, 3)), "2 shall not take itself for a replica"
    assert moving(cluster) == ((3, 1), (), ())


def test_another_order_of_the_same_replicas_is_done_at_once() -> None:
    cluster = with_topic(1, 2)
    assert reassign(cluster, 2, 1) is None
    assert moving(cluster) == ((2, 1), (), ())
    assert (cluster.partition().leader, cluster.partition().leader_epoch) == (1, 0)
    assert cluster.partition().directories == (bytes([2]) * 16, bytes([1]) * 16)


def test_what_is_so_already_gives_no_record() -> None:
    cluster = with_topic(1, 2)
    index = cluster.image.index
    assert reassign(cluster, 1, 2) is None
    assert cluster.image.index == index


def test_the_replication_factor_grows_and_shrinks() -> None:
    cluster = with_topic(1)
    reassign(cluster, 1, 2, 3)
    assert moving(cluster) == ((1, 2, 3), (2, 3), ())
    cluster.submit(cluster.isr_change(1, 2))
    cluster.submit(cluster.isr_change(1, 2, 3))
    assert moving(cluster) == ((1, 2, 3), (), ())
    assert reassign(cluster, 2) is None
    assert moving(cluster) == ((2,), (), ())
    assert (cluster.partition().leader, cluster.partition().isr) == (2, (2,))


def test_fewer_replicas_must_all_be_in_sync_before_the_others_go() -> None:
    cluster = with_topic(1, 2, 3)
    cluster.submit(cluster.isr_change(1, 3))
    reassign(cluster, 1, 2)
    assert moving(cluster) == ((1, 2, 3), (), (3,))
    cluster.submit(cluster.isr_change(1, 3, 2))
    assert moving(cluster) == ((1, 2), (), ())


def test_the_replication_factor_stays_where_the_caller_says_so() -> None:
    cluster = with_topic(1, 2)
    assert reassign(cluster, 3, 4, 5, allow=False) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(cluster, 3, allow=False) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(cluster, 3, 4, allow=False) is None
    assert reassign(cluster, 4, 5, allow=False) is None, "replicas that are still to go do not count"


@pytest.mark.parametrize("replicas", [(), (3, 3), (3, 9), (-1,)])
def test_a_target_that_cannot_be_is_refused(replicas: tuple[int, ...]) -> None:
    cluster = with_topic(1, 2)
    before = cluster.image
    assert reassign(cluster, *replicas) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.image.topics is before.topics


def test_every_partition_gets_its_own_answer() -> None:
    cluster = with_topic(1, 2)
    wanted = [("orders", 0, (3,)), ("orders", 7, (3,)), ("nothing", 0, (3,)), ("other", 0, (9,))]
    cluster.create(1, name="other")
    results = cluster.submit(AlterReassignments(tuple(Reassignment(*each) for each in wanted)))
    assert [(result.topic, result.partition, result.error and result.error.code) for result in results] == [
        ("orders", 0, None),
        ("orders", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("nothing", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("other", 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ]


def test_a_partition_that_is_named_twice_is_refused() -> None:
    cluster = with_topic(1, 2)
    event = AlterReassignments((Reassignment("orders", 0, (3, 4)), Reassignment("orders", 0, (5, 6))))
    (result,) = cluster.submit(event)
    assert result.error is not None
    assert result.error.code is ErrorCode.INVALID_REQUEST
    assert moving(cluster) == ((1, 2), (), ())


def test_a_cancelled_move_leaves_the_replicas_that_were_there() -> None:
    cluster = with_topic(1, 2)
    reassign(cluster, 3, 4)
    cluster.submit(cluster.isr_change(1, 2, 3))
    assert cancel(cluster) is None
    assert moving(cluster) == ((1, 2), (), ())
    assert cluster.partition().isr == (1, 2)
    assert cluster.partition().leader_epoch == 1, "3 shall not take itself for a replica"
    assert cancel(cluster) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_move_is_redirected_from_what_was_there_before_it() -> None:
    cluster = with_topic(1, 2)
    reassign(cluster, 3, 4)
    cluster.submit(cluster.isr_change(1, 2, 3))
    assert reassign(cluster, 4, 5) is None
    assert moving(cluster) == ((4, 5, 1, 2), (4, 5), (1, 2))
    assert cluster.partition().isr == (1, 2)
    cancel(cluster)
    assert moving(cluster) == ((1, 2), (), ())


def only_the_new_one_is_in_sync(**configs: str) -> TestCluster:
    cluster = with_topic(1, **configs)
    reassign(cluster, 2, 3)
    cluster.submit(cluster.isr_change(1, 2))
    cluster.fence(1)
    cluster.start(1, is_clean=False)
    assert (cluster.partition().leader, cluster.partition().isr) == (2, (2,))
    return cluster


def test_a_cancel_does_not_throw_away_the_only_complete_replica() -> None:
    cluster = only_the_new_one_is_in_sync()
    assert cancel(cluster) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(cluster, 3) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.partition().leader == 2


def test_a_cancel_may_throw_it_away_where_unclean_elections_are_allowed() -> None:
    cluster = only_the_new_one_is_in_sync(unclean_leader_election_enable="true")
    assert cancel(cluster) is None
    assert (cluster.partition().leader, cluster.partition().isr) == (1, (1,))
    assert cluster.outcome.unclean_elections == 1


def test_an_unclean_election_takes_a_replica_that_is_being_added_last() -> None:
    cluster = with_topic(1, 2, unclean_leader_election_enable="true")
    cluster.submit(cluster.isr_change(1))
    reassign(cluster, 3, 4)
    cluster.fence(1)
    assert cluster.partition().leader == 2
    cluster.fence(2)
    cluster.start(2, is_clean=False)
    cluster.fence(2, 3)
    assert cluster.partition().leader == 4


def test_a_partition_without_a_leader_can_be_given_replicas_that_wait_with_it() -> None:
    cluster = with_topic(1)
    cluster.fence(1)
    assert reassign(cluster, 2) is None
    assert moving(cluster) == ((2, 1), (2,), (1,))
    assert cluster.partition().leader == NO_LEADER
    cluster.start(1)
    cluster.submit(cluster.isr_change(1, 2))
    assert moving(cluster) == ((2,), (), ())
    check_consistency(cluster.image)


def test_partitions_that_are_added_while_others_move_have_the_factor_of_the_target() -> None:
    cluster = with_topic(1, 2)
    reassign(cluster, 3, 4)
    cluster.submit(CreatePartitions((NewPartitions("orders", 2),)))
    assert len(cluster.partition(number=1).replicas) == 2


def test_moves_of_some_partitions_can_be_asked_for() -> None:
    cluster = with_topic(1, 2)
    cluster.create(1, name="other")
    reassign(cluster, 3, 4)
    asked = [("other", 0), ("orders", 0), ("orders", 5), ("nothing", 0)]
    assert [(move.topic, move.partition) for move in list_reassignments(cluster.image, asked)] == [("orders", 0)]
