"""Leaders that an operator wishes for, or the balance."""

from __future__ import annotations

import pytest

from barnabas.cluster import leaders
from barnabas.cluster.events import (
    PREFERRED_ELECTION,
    UNCLEAN_ELECTION,
    BalanceLeaders,
    CreateTopics,
    ElectLeaders,
    NewTopic,
)
from barnabas.cluster.records import NO_LEADER
from barnabas.core.errors import ErrorCode, KafkaError
from tests.unit.cluster.clusters import TestCluster


def elect(cluster: TestCluster, kind: int, *partitions: tuple[str, int]) -> dict[tuple[str, int], ErrorCode | None]:
    """For these partitions, or for all."""
    results = cluster.submit(ElectLeaders(kind, partitions or None))
    return {(result.topic, result.partition): result.error.code if result.error else None for result in results}


def away_from_home() -> TestCluster:
    """`orders` prefers 1 but is led by 2, with both in sync."""
    cluster = TestCluster(3)
    cluster.create(1, 2)
    cluster.fence(1)
    cluster.start(1)
    cluster.submit(cluster.isr_change(2, 1))
    return cluster


def test_a_preferred_leader_in_sync_is_elected() -> None:
    cluster = away_from_home()
    epoch = cluster.partition().leader_epoch
    assert elect(cluster, PREFERRED_ELECTION, ("orders", 0)) == {("orders", 0): None}
    assert (cluster.partition().leader, cluster.partition().leader_epoch) == (1, epoch + 1)
    assert set(cluster.partition().isr) == {1, 2}


def test_every_partition_gets_its_own_answer() -> None:
    cluster = away_from_home()
    cluster.create(3, 2, name="at-home")
    cluster.create(3, 1, name="not-in-sync")
    cluster.fence(3)
    cluster.start(3)
    asked = [("orders", 0), ("at-home", 0), ("not-in-sync", 0), ("orders", 1), ("nothing", 0)]
    cluster.submit(cluster.isr_change(2, 3, name="at-home"))
    elect(cluster, PREFERRED_ELECTION, ("at-home", 0))
    assert list(elect(cluster, PREFERRED_ELECTION, *asked).items()) == [
        (("orders", 0), None),
        (("at-home", 0), ErrorCode.ELECTION_NOT_NEEDED),
        (("not-in-sync", 0), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (("orders", 1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("nothing", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert elect(cluster, PREFERRED_ELECTION) == {("not-in-sync", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


def test_an_unclean_election_takes_any_live_replica_where_there_is_no_leader() -> None:
    cluster = TestCluster(3)
    cluster.create(1, 2, 3)
    cluster.create(1, name="dead")
    cluster.create(3, name="led")
    cluster.submit(cluster.isr_change(1))
    cluster.fence(1, 2)
    assert cluster.partition().leader == NO_LEADER
    assert elect(cluster, UNCLEAN_ELECTION, ("orders", 0), ("led", 0), ("dead", 0)) == {
        ("orders", 0): None,
        ("led", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("dead", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    }
    assert (cluster.partition().leader, cluster.partition().isr) == (3, (3,))
    assert cluster.outcome.unclean_elections == 1
    assert elect(cluster, UNCLEAN_ELECTION) == {("dead", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


def test_an_unknown_kind_of_election_is_refused() -> None:
    with pytest.raises(KafkaError, match="election type 2 is unknown") as caught:
        elect(TestCluster(1), 2)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def after_a_restart(partitions: int, away: int) -> TestCluster:
    """All prefer 1; so many are led by 2, and 1 is in sync with all of them."""
    cluster = TestCluster(2)
    assignments = tuple((number, (1, 2)) for number in range(partitions))
    cluster.submit(CreateTopics((NewTopic("many", assignments=assignments),)))
    cluster.fence(1)
    cluster.start(1)
    for number in range(partitions):
        cluster.submit(cluster.isr_change(2, 1, name="many", number=number))
    cluster.submit(ElectLeaders(PREFERRED_ELECTION, tuple(("many", number) for number in range(partitions - away))))
    return cluster


@pytest.mark.parametrize(("away", "moved"), [(0, 0), (1, 0), (2, 2), (10, 10)])
def test_leaders_go_home_when_a_broker_misses_more_than_its_share(away: int, moved: int) -> None:
    cluster = after_a_restart(10, away)
    assert cluster.submit(BalanceLeaders(imbalance_percentage=10)) == moved
    led = [partition.leader for partition in cluster.image.topics["many"].partitions]
    assert led.count(1) == 10 - away + moved
    assert cluster.submit(BalanceLeaders(imbalance_percentage=10)) == 0


def test_only_who_is_in_sync_goes_home() -> None:
    cluster = after_a_restart(4, 4)
    cluster.submit(cluster.isr_change(2, name="many", number=3))
    assert cluster.submit(BalanceLeaders()) == 3
    assert cluster.partition("many", 3).leader == 2


def test_one_balance_moves_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaders, "MAX_MOVES", 3)
    cluster = after_a_restart(5, 5)
    assert [cluster.submit(BalanceLeaders()) for _ in range(3)] == [3, 2, 0]
