"""The admin with several brokers: each call finds its own, also when the controller has just died."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas import Admin, KafkaError, TopicPartition
from barnabas.client.admin.configs import ResourceType
from barnabas.client.admin.reassignments import Reassignment
from barnabas.client.group.values import OffsetAndMetadata
from barnabas.client.list_offsets import LATEST
from barnabas.client.metadata import NO_LEADER
from barnabas.client.outcomes import PartlyFailed
from barnabas.core.errors import ErrorCode
from tests.clients.admin_work import administer, comes_to, produce
from tests.cluster.three_brokers import NUMBERS, Cluster, seconds_until, three_brokers

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"offsets.topic.replication.factor": "3", "offsets.topic.num.partitions": "6"}
    with three_brokers(tmp_path_factory.mktemp("brokers"), settings) as running:
        yield running


def test_groups_of_all_coordinators_are_administered_in_one_call(brokers: Cluster, topic_name: str) -> None:
    groups = [f"{topic_name}-{number}" for number in range(12)]
    partitions = [TopicPartition(topic_name, number) for number in range(3)]

    async def work(admin: Admin) -> None:
        await admin.topics.create(topic_name, assignment=[[1], [2], [3]])
        # A leader that answers has read of the topic, and any of the three may be the coordinator of a group.
        await admin.partitions.list_offsets(dict.fromkeys(partitions, LATEST))
        for group in groups:
            await admin.offsets.alter(group, dict.fromkeys(partitions, 0))
        coordinators = await admin.topics.describe("__consumer_offsets")
        assert len({each.leader for each in coordinators.partitions}) > 1, "one broker has all groups"
        assert set(groups) <= {group.group_id for group in await admin.groups.list()}
        assert (await admin.groups.describe_many(groups)).keys() == set(groups)
        committed = await admin.offsets.list_many(dict.fromkeys(groups))
        assert committed == dict.fromkeys(groups, dict.fromkeys(partitions, OffsetAndMetadata(0)))
        await admin.groups.delete_many(groups)
        assert not {group.group_id for group in await admin.groups.list()} & set(groups)

    administer(brokers.bootstrap, work)


def test_each_leader_and_each_broker_is_asked_for_its_own(brokers: Cluster, topic_name: str) -> None:
    partitions = [TopicPartition(topic_name, number) for number in range(3)]

    async def create(admin: Admin) -> None:
        await admin.topics.create(topic_name, assignment=[[1, 2], [2, 3], [3, 1]])
        await admin.partitions.list_offsets(dict.fromkeys(partitions, LATEST))

    async def work(admin: Admin) -> None:
        ends = await admin.partitions.list_offsets(dict.fromkeys(partitions, LATEST))
        assert {partition: found.offset for partition, found in ends.items()} == dict.fromkeys(partitions, 5)
        assert await admin.records.delete(dict.fromkeys(partitions, 2)) == dict.fromkeys(partitions, 2)
        assert {len(found) for found in (await admin.producers.describe_many(partitions)).values()} == {0}
        dirs = await admin.log_dirs.describe(partitions=partitions)
        held = {
            broker: {replica.partition.partition for each in found for replica in each.replicas}
            for broker, found in dirs.items()
        }
        assert held == {1: {0, 2}, 2: {0, 1}, 3: {1, 2}}
        for number in NUMBERS:
            entry = (await admin.configs.describe(ResourceType.BROKER, str(number), ["node.id"]))["node.id"]
            assert entry.value == str(number)

    administer(brokers.bootstrap, create)
    for number in range(3):
        produce(brokers.bootstrap, topic_name, 5, partition=number)
    administer(brokers.bootstrap, work)


def test_a_move_is_under_way_called_off_and_done(brokers: Cluster, topic_name: str) -> None:
    partition = TopicPartition(topic_name, 0)
    administer(brokers.bootstrap, lambda admin: admin.topics.create(topic_name, assignment=[[1, 2]]))
    produce(brokers.bootstrap, topic_name, 2000)

    async def work(admin: Admin) -> None:
        for number in NUMBERS:
            await admin.configs.alter(ResourceType.BROKER, str(number), set_=dict.fromkeys(RATES, "1"))
        await admin.configs.alter(ResourceType.TOPIC, topic_name, set_=dict.fromkeys(REPLICAS, "*"))
        await admin.reassignments.alter({partition: [3, 2]})
        moving = [Reassignment(partition, (3, 2, 1), (3,), (1,))]
        assert await admin.reassignments.list() == await admin.reassignments.list([partition]) == moving
        await admin.reassignments.cancel([partition])
        assert await admin.reassignments.list() == []
        for number in NUMBERS:
            await admin.configs.alter(ResourceType.BROKER, str(number), delete=RATES)

        async def replicas() -> tuple[tuple[int, ...], int]:
            [info] = (await admin.topics.describe(topic_name)).partitions
            return info.replicas, info.leader

        assert await replicas() == ((2, 1), 1)  # in the order that the move has left behind, as with Kafka
        await admin.reassignments.alter({partition: [2, 3]})
        await comes_to(replicas, ((2, 3), 2))
        await admin.reassignments.alter({partition: [3, 2]})  # another order: nothing to copy
        await comes_to(admin.reassignments.list, [])
        assert await admin.elections.preferred([partition]) == {partition: True}
        await comes_to(replicas, ((3, 2), 3))
        assert await admin.elections.preferred([partition]) == {partition: False}

    administer(brokers.bootstrap, work)


def test_a_replica_that_lacks_records_leads_only_on_demand(brokers: Cluster, topic_name: str) -> None:
    first, second = (number for number in NUMBERS if number != brokers.controller())
    partition = TopicPartition(topic_name, 0)
    administer(brokers.bootstrap, lambda admin: admin.topics.create(topic_name, assignment=[[first, second]]))

    async def state(admin: Admin) -> tuple[int, tuple[int, ...]]:
        [info] = (await admin.topics.describe(topic_name)).partitions
        return info.leader, info.isr

    async def eligible(admin: Admin) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        [info] = (await admin.topics.describe(topic_name)).partitions
        return info.leader, info.isr, info.eligible_leader_replicas

    async def elect(admin: Admin) -> None:
        await comes_to(lambda: eligible(admin), (NO_LEADER, (), (first,)))
        with pytest.raises(PartlyFailed) as caught:
            await admin.elections.preferred([partition])
        assert caught.value.errors[partition].code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        assert await admin.elections.unclean([partition]) == {partition: True}
        await comes_to(lambda: state(admin), (second, (second,)))

    brokers.stop(second)
    administer(brokers.bootstrap, lambda admin: comes_to(lambda: state(admin), (first, (first,))))
    produce(brokers.bootstrap, topic_name, 3)
    brokers.kill(first)
    brokers.start(second)
    try:
        administer(brokers.bootstrap, elect)
    finally:
        brokers.start(first)


def test_a_call_outlives_the_controller_and_the_dead_broker_is_forgotten(brokers: Cluster, topic_name: str) -> None:
    controller = brokers.controller()

    async def work(admin: Admin) -> None:
        async def has_another_controller() -> bool:
            return (await admin.cluster.describe()).controller_id != controller

        assert (await admin.cluster.describe()).controller_id == controller
        brokers.kill(controller)
        assert (await admin.topics.create(topic_name, partitions=2, replication_factor=2)).partitions == 2
        await comes_to(has_another_controller, True)
        with pytest.raises(KafkaError, match=f"broker {controller} does not serve"):
            await admin.configs.describe(ResourceType.BROKER, str(controller))

        async def known() -> tuple[int, frozenset[int]]:
            found = await admin.cluster.describe()
            return len(found.brokers), found.fenced

        await comes_to(known, (3, frozenset({controller})))
        await admin.cluster.unregister_broker(controller)
        await comes_to(known, (2, frozenset()))

    try:
        administer(brokers.bootstrap, work)
    finally:
        brokers.start(controller)
        seconds_until(lambda: brokers.controller() > 0, 20)
