"""Topics are created, grown, deleted and refused, item by item, each with its own error."""

from __future__ import annotations

import pytest

from barnabas.cluster.events import (
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    Failure,
    FenceBroker,
    NewPartitions,
    NewTopic,
    TopicReference,
)
from barnabas.cluster.image import TOPIC_RESOURCE
from barnabas.core.errors import ErrorCode
from barnabas.core.ids import ZERO_UUID
from tests.unit.cluster.clusters import TestCluster


def create(cluster: TestCluster, *topics: NewTopic, validate_only: bool = False) -> list[CreatedTopic]:
    return list(cluster.submit(CreateTopics(topics, validate_only)))


def refused(cluster: TestCluster, topic: NewTopic) -> Failure:
    before = cluster.image
    (result,) = create(cluster, topic)
    assert result.error is not None
    assert cluster.image is not before or cluster.image == before
    assert cluster.image.topics.keys() == before.topics.keys()
    return result.error


def test_defaults_come_from_the_configuration() -> None:
    cluster = TestCluster(3, num_partitions="4", default_replication_factor="2")
    (result,) = create(cluster, NewTopic("orders"))
    assert (result.num_partitions, result.replication_factor, result.error) == (4, 2, None)
    topic = cluster.image.topics["orders"]
    assert topic.id == result.topic_id != ZERO_UUID
    assert len(topic.partitions) == 4
    for partition in topic.partitions:
        assert partition.isr == partition.replicas
        assert partition.leader == partition.replicas[0]
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
        assert partition.directories == tuple(bytes([broker]) * 16 for broker in partition.replicas)


def test_configurations_come_with_the_topic() -> None:
    cluster = TestCluster(1)
    (result,) = create(cluster, NewTopic("orders", configs={"retention.ms": "60000"}))
    assert result.configs == {"retention.ms": "60000"}
    assert cluster.image.config(TOPIC_RESOURCE, "orders") == {"retention.ms": "60000"}


def test_validation_alone_answers_the_same_and_creates_nothing() -> None:
    cluster = TestCluster(1)
    index = cluster.image.index
    (fine, bad) = create(cluster, NewTopic("orders", 3), NewTopic("a/b"), validate_only=True)
    assert (fine.num_partitions, fine.topic_id, fine.error) == (3, ZERO_UUID, None)
    assert bad.error is not None
    assert cluster.image.index == index


def test_one_bad_topic_does_not_keep_the_others_from_being_created() -> None:
    cluster = TestCluster(1)
    results = create(cluster, NewTopic("good"), NewTopic("no good"), NewTopic("better"))
    assert [result.error is None for result in results] == [True, False, True]
    assert cluster.image.topics.keys() == {"good", "better"}


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "the empty string is not allowed$"),
        (".", r"'\.' is not allowed$"),
        ("..", r"'\.\.' is not allowed$"),
        ("a" * 250, "a{250}' is longer than the max allowed length 249$"),
        ("a" * 30_000, r"'a{1000}\.\.\.' is longer than"),
        ("größe", "'größe' contains one or more characters other than ASCII alphanumerics"),
        ("a b", "'a b' contains one or more characters other than"),
        ("a\n", "'a\n' contains one or more characters other than"),
        ("__cluster_metadata", "is reserved"),
    ],
)
def test_a_name_that_cannot_be_a_directory_is_refused(name: str, problem: str) -> None:
    failure = refused(TestCluster(1), NewTopic(name))
    assert failure.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    with pytest.raises(AssertionError, match=problem):
        raise AssertionError(failure.message)


def test_the_longest_name_and_names_of_internal_topics_are_accepted() -> None:
    cluster = TestCluster(1)
    assert not any(result.error for result in create(cluster, NewTopic("a" * 249), NewTopic("__consumer_offsets")))


def test_names_that_differ_only_in_dots_and_underscores_collide() -> None:
    cluster = TestCluster(1)
    results = create(cluster, NewTopic("a.b"), NewTopic("a_b"))
    assert results[1].error == Failure(
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "Topic 'a_b' collides with existing topic: a.b; they differ only in '.' and '_'",
    )
    assert refused(cluster, NewTopic("a_b")).code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_topic_that_is_there_and_one_that_is_asked_for_twice_are_refused() -> None:
    cluster = TestCluster(1)
    create(cluster, NewTopic("orders"))
    assert refused(cluster, NewTopic("orders")) == Failure(
        ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'orders' already exists."
    )
    (twice,) = create(cluster, NewTopic("audit"), NewTopic("audit", 3))
    assert twice.error is not None
    assert twice.error.code is ErrorCode.INVALID_REQUEST
    assert "audit" not in cluster.image.topics


@pytest.mark.parametrize(
    ("topic", "code", "problem"),
    [
        (NewTopic("t", 0), ErrorCode.INVALID_PARTITIONS, "cannot have 0 partitions"),
        (NewTopic("t", -2), ErrorCode.INVALID_PARTITIONS, "cannot have -2 partitions"),
        (NewTopic("t", 10_001), ErrorCode.POLICY_VIOLATION, "10001 new partitions in one request"),
        (NewTopic("t", 2**31 - 1), ErrorCode.POLICY_VIOLATION, "split it"),
        (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "cannot have replication factor 0"),
        (
            NewTopic("t", 1, 4),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "4 cannot be reached because only 3 broker(s) are registered",
        ),
        (NewTopic("t", 1, assignments=((0, (1,)),)), ErrorCode.INVALID_REQUEST, "leave partitions and replication"),
        (NewTopic("t", assignments=((1, (1,)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "0, 1, 2 and so on"),
        (NewTopic("t", assignments=((0, (1,)), (0, (2,)))), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "each once"),
        (NewTopic("t", assignments=((0, ()),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "is empty"),
        (NewTopic("t", assignments=((0, (1, 1)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "names a broker twice"),
        (NewTopic("t", assignments=((0, (1, 9)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 9 is not registered"),
        (NewTopic("t", assignments=((0, (1, 2)), (1, (3,)))), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "1 brokers where"),
        (NewTopic("t", configs={"retenton.ms": "1"}), ErrorCode.INVALID_CONFIG, "did you mean 'retention.ms'"),
        (NewTopic("t", configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG, "Not a number of type LONG"),
        (NewTopic("t", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG, "Null value not supported"),
    ],
)
def test_what_cannot_be_created_is_refused_with_its_own_error(topic: NewTopic, code: ErrorCode, problem: str) -> None:
    failure = refused(TestCluster(3), topic)
    assert failure.code is code
    assert problem in failure.message


def test_replicas_chosen_by_hand_are_taken_as_they_are_and_only_the_living_are_in_sync() -> None:
    cluster = TestCluster(3)
    cluster.submit(FenceBroker(2, cluster.image.brokers[2].epoch))
    (result,) = create(cluster, NewTopic("orders", assignments=((1, (3, 1)), (0, (2, 3)))))
    assert (result.num_partitions, result.replication_factor, result.error) == (2, 2, None)
    first, second = cluster.image.topics["orders"].partitions
    assert (first.replicas, first.isr, first.leader) == ((2, 3), (3,), 3)
    assert (second.replicas, second.isr, second.leader) == ((3, 1), (3, 1), 3)
    assert "fenced or shutting down" in refused(cluster, NewTopic("t", assignments=((0, (2,)),))).message


def test_no_replica_is_placed_on_a_fenced_broker() -> None:
    cluster = TestCluster(3)
    cluster.submit(FenceBroker(2, cluster.image.brokers[2].epoch))
    create(cluster, NewTopic("orders", 10, 2))
    assert {b for partition in cluster.image.topics["orders"].partitions for b in partition.replicas} == {1, 3}
    assert "2 of the 3 registered brokers" in refused(cluster, NewTopic("t", 1, 3)).message


def test_replicas_spread_over_racks() -> None:
    cluster = TestCluster(4, racks=("east", "west"))
    create(cluster, NewTopic("orders", 12, 2))
    for partition in cluster.image.topics["orders"].partitions:
        assert {cluster.image.brokers[broker].rack for broker in partition.replicas} == {"east", "west"}


def test_topics_are_deleted_by_name_and_by_id() -> None:
    cluster = TestCluster(1)
    one, two, three = create(cluster, *(NewTopic(name) for name in ("one", "two", "three")))
    results = cluster.submit(
        DeleteTopics(
            (
                TopicReference("one"),
                TopicReference(topic_id=two.topic_id),
                TopicReference("none"),
                TopicReference(topic_id=b"x" * 16),
                TopicReference("three", three.topic_id),
                TopicReference(),
            )
        )
    )
    assert [(result.name, result.topic_id) for result in results[:2]] == [("one", one.topic_id), ("two", two.topic_id)]
    assert [result.error.code if result.error else None for result in results] == [
        None,
        None,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert cluster.image.topics.keys() == {"three"}


def test_a_topic_named_twice_in_one_deletion_is_deleted_once_at_most() -> None:
    cluster = TestCluster(1)
    (topic,) = create(cluster, NewTopic("orders"))
    by_name, by_id = TopicReference("orders"), TopicReference(topic_id=topic.topic_id)
    (same,) = cluster.submit(DeleteTopics((by_name, by_name)))
    assert same.error is not None
    assert same.error.code is ErrorCode.INVALID_REQUEST
    first, second = cluster.submit(DeleteTopics((by_name, by_id)))
    assert first.error is None
    assert second.error is not None
    assert not cluster.image.topics


def test_deletion_can_be_switched_off() -> None:
    cluster = TestCluster(1, delete_topic_enable="false")
    create(cluster, NewTopic("orders"))
    (result,) = cluster.submit(DeleteTopics((TopicReference("orders"),)))
    assert result.error is not None
    assert result.error.code is ErrorCode.TOPIC_DELETION_DISABLED
    assert "orders" in cluster.image.topics


def test_a_topic_grows_and_keeps_what_it_has() -> None:
    cluster = TestCluster(3)
    create(cluster, NewTopic("orders", 2, 2))
    before = cluster.image.topics["orders"].partitions
    (result,) = cluster.submit(CreatePartitions((NewPartitions("orders", 6),)))
    assert result.error is None
    after = cluster.image.topics["orders"].partitions
    assert after[:2] == before
    assert len(after) == 6
    assert all(len(partition.replicas) == 2 for partition in after)
    (by_hand,) = cluster.submit(CreatePartitions((NewPartitions("orders", 8, ((3, 1), (1, 2))),)))
    assert by_hand.error is None
    assert [partition.replicas for partition in cluster.image.topics["orders"].partitions[6:]] == [(3, 1), (1, 2)]


@pytest.mark.parametrize(
    ("wanted", "code", "problem"),
    [
        (
            NewPartitions("orders", 3),
            ErrorCode.INVALID_PARTITIONS,
            "The topic orders currently has 6 partition(s); 3 would not be an increase.",
        ),
        (NewPartitions("orders", 6), ErrorCode.INVALID_PARTITIONS, "Topic already has 6 partition(s)."),
        (NewPartitions("orders", 20_000), ErrorCode.POLICY_VIOLATION, "split it"),
        (NewPartitions("none", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 'none' does not exist"),
        (NewPartitions("orders", 8, ((1,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "gets 2 partitions more, but 1"),
        (NewPartitions("orders", 7, ((1, 2),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "2 brokers where the other"),
        (NewPartitions("orders", 7, ((7,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 7 is not registered"),
    ],
)
def test_a_topic_that_cannot_grow_says_why(wanted: NewPartitions, code: ErrorCode, problem: str) -> None:
    cluster = TestCluster(2)
    create(cluster, NewTopic("orders", 6, 1))
    index = cluster.image.index
    (result,) = cluster.submit(CreatePartitions((wanted,)))
    assert result.error is not None
    assert result.error.code is code
    assert problem in result.error.message
    assert cluster.image.index == index


def test_growing_can_be_tried_out_and_must_not_be_asked_for_twice() -> None:
    cluster = TestCluster(1)
    create(cluster, NewTopic("orders"))
    (tried,) = cluster.submit(CreatePartitions((NewPartitions("orders", 3),), validate_only=True))
    assert tried.error is None
    (twice,) = cluster.submit(CreatePartitions((NewPartitions("orders", 3), NewPartitions("orders", 4))))
    assert twice.error is not None
    assert twice.error.code is ErrorCode.INVALID_REQUEST
    assert len(cluster.image.topics["orders"].partitions) == 1
