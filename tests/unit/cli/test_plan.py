"""Plans of reassignments: Kafka's format is read and written, and what cannot be done is told before anything is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.cli import plan as plans
from barnabas.cli.cluster_state import ClusterState, broker_rows, health
from barnabas.client.admin.cluster import ClusterDescription
from barnabas.client.admin.reassignments import Reassignment
from barnabas.client.metadata import BrokerInfo, PartitionInfo, TopicInfo, TopicPartition


def cluster(
    *replicas: tuple[int, ...], fenced: tuple[int, ...] = (), isr: tuple[int, ...] | None = None
) -> ClusterState:
    """Brokers 1 to 3, the first of them the controller, and a topic with these replicas."""
    partitions = tuple(
        PartitionInfo(number, in_sync[0] if (in_sync := each if isr is None else isr) else -1, 0, each, in_sync, ())
        for number, each in enumerate(replicas)
    )
    brokers = tuple(BrokerInfo(number, "host", 9090 + number, f"rack-{number}") for number in (1, 2, 3))
    description = ClusterDescription("id", 1, brokers, frozenset(fenced))
    return ClusterState(description, [TopicInfo("t", bytes(16), False, partitions)], [])


def kafka_plan(*partitions: dict[str, Any]) -> str:
    return json.dumps({"version": 1, "partitions": list(partitions)})


def test_a_plan_goes_round_through_kafkas_format() -> None:
    plan = {TopicPartition("t", 0): (1, 2), TopicPartition("t", 1): (3,)}
    assert plans.parse(json.dumps(plans.to_kafka(plan))) == plan


def test_log_directories_may_be_any() -> None:
    entry = {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]}
    assert plans.parse(kafka_plan(entry)) == {TopicPartition("t", 0): (1, 2)}
    with pytest.raises(plans.PlanError, match="log directory"):
        plans.parse(kafka_plan({**entry, "log_dirs": ["/data", "any"]}))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not of the form"),
        ("[]", "not of the form"),
        ('{"version": 1}', "'partitions' is missing"),
        ('{"version": 2, "partitions": []}', "version 2 is not known"),
        (kafka_plan({"topic": "t", "replicas": [1]}), "'partition' is missing"),
        (kafka_plan({"topic": "t", "partition": 0, "replicas": ["x"]}), "'x'"),
        (kafka_plan(*2 * [{"topic": "t", "partition": 0, "replicas": [1]}]), "t-0 is in it more than once"),
    ],
)
def test_a_text_that_is_no_plan_is_told_why(text: str, problem: str) -> None:
    with pytest.raises(plans.PlanError, match=problem):
        plans.parse(text)


@pytest.mark.parametrize(
    ("partition", "replicas", "problem"),
    [
        (0, (1, 9), r"there is no broker 9 \(there are 1, 2, 3\), but t-0 is to go there"),
        (0, (), "t-0 would have no replicas"),
        (0, (1, 1), "two replicas on one broker"),
        (7, (1,), "partition t-7 does not exist"),
        (0, (1, 3), "broker 3 does not serve"),
    ],
)
def test_a_plan_that_cannot_be_done_is_refused(partition: int, replicas: tuple[int, ...], problem: str) -> None:
    with pytest.raises(plans.PlanError, match=problem):
        plans.check({TopicPartition("t", partition): replicas}, cluster((1, 2), fenced=(3,)))


def test_what_is_so_already_is_left_out() -> None:
    plan = {TopicPartition("t", 0): (1, 2), TopicPartition("t", 1): (1, 3)}
    assert plans.check(plan, cluster((1, 2), (2, 3))) == {TopicPartition("t", 1): (1, 3)}


def test_a_broker_that_is_down_is_drained_or_awaited() -> None:
    state = cluster((1, 3), (2, 3), fenced=(3,))
    with pytest.raises(plans.PlanError, match=r"broker 3 does not serve; start it, or .* --drain 3"):
        plans.propose(state)
    assert plans.propose(state, drain=[3]) == {TopicPartition("t", 0): (1, 2), TopicPartition("t", 1): (2, 1)}


def test_a_broker_that_was_forgotten_can_be_drained_too() -> None:
    assert plans.propose(cluster((1, 8)), drain=[8]) == {TopicPartition("t", 0): (1, 2)}


def test_strangers_cannot_be_drained_and_too_few_brokers_are_told() -> None:
    with pytest.raises(plans.PlanError, match="there is no broker 9"):
        plans.propose(cluster((1, 2)), drain=[9])
    with pytest.raises(plans.PlanError, match="t cannot have 4 replicas on 3 brokers"):
        plans.propose(cluster((1, 2)), factor=4)
    with pytest.raises(plans.PlanError, match="topic 'other' does not exist"):
        plans.propose(cluster((1, 2)), only=["other"])


def test_rows_show_what_a_partition_gains_and_a_broker_will_have() -> None:
    state = cluster((1, 2))
    plan = {TopicPartition("t", 0): (3, 1)}
    [row] = plans.rows(plan, state.partitions)
    assert (row["replicas"], row["new_replicas"], row["adds"], row["removes"]) == ([1, 2], [3, 1], [3], [2])
    assert [list(each.values()) for each in plans.broker_rows(plan, state)] == [
        [1, 1, 1, 1, 0],
        [2, 1, 0, 0, 0],
        [3, 0, 1, 0, 1],
    ]


def test_a_cluster_with_all_in_sync_is_healthy() -> None:
    found = health(cluster((1, 2), (2, 3)), {"t": 2})
    assert found["healthy"]
    assert found["brokers"] == {"alive": [1, 2, 3], "fenced": [], "missing": []}


@pytest.mark.parametrize(
    ("isr", "troubles"),
    [
        ((1, 2), {"under_replicated"}),
        ((1,), {"under_replicated", "under_min_isr"}),
        ((), {"under_replicated", "under_min_isr", "offline"}),
    ],
)
def test_partitions_in_trouble_are_told_by_its_kind(isr: tuple[int, ...], troubles: set[str]) -> None:
    found = health(cluster((1, 2, 3), isr=isr), {"t": 2})
    assert not found["healthy"]
    assert {kind for kind in ("under_replicated", "under_min_isr", "offline") if found[kind]} == troubles
    assert all(found[kind][0]["partition"] == 0 for kind in troubles)


def test_one_replica_alone_is_enough_where_no_more_are_wanted() -> None:
    assert health(cluster((1,)), {"t": 2})["healthy"]


def test_a_replica_that_is_on_its_way_is_not_missed() -> None:
    state = cluster((3, 1, 2), isr=(1, 2))
    move = Reassignment(TopicPartition("t", 0), (3, 1, 2), adding=(3,), removing=())
    assert not health(state, {"t": 2})["healthy"]
    assert health(ClusterState(state.cluster, state.topics, [move]), {"t": 2})["healthy"]


def test_brokers_that_are_fenced_or_missing_are_trouble() -> None:
    assert health(cluster((1, 2), fenced=(3,)), {"t": 1})["brokers"]["fenced"] == [3]
    assert not health(cluster((1, 2), fenced=(3,)), {"t": 1})["healthy"]
    assert health(cluster((1, 7)), {"t": 1})["brokers"]["missing"] == [7]


def test_brokers_are_listed_with_what_they_have() -> None:
    rows = broker_rows(cluster((1, 2), (1, 7), fenced=(2,)))
    assert [(row["broker"], row["state"], row["controller"]) for row in rows] == [
        (1, "alive", True),
        (2, "fenced", False),
        (3, "alive", False),
        (7, "missing", False),
    ]
    assert (rows[0]["leaders"], rows[0]["replicas"], rows[0]["rack"]) == (2, 2, "rack-1")
