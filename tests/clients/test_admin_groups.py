"""Groups and their offsets as the admin tells and changes them, with librdkafka's consumers in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import pytest

from barnabas import Admin, KafkaError, TopicPartition
from barnabas.client.admin.groups import GroupState, GroupType
from barnabas.client.group.values import OffsetAndMetadata
from barnabas.client.offsets import Beginning, End, Last
from barnabas.client.outcomes import PartlyFailed
from barnabas.core.errors import ErrorCode
from tests.clients.admin_work import administer, comes_to, judge, led_partitions, produce
from tests.peers import eventually

PROTOCOLS = [GroupType.CLASSIC, GroupType.CONSUMER]


def topic_of_three(address: str, name: str, records: int = 0) -> list[TopicPartition]:
    administer(address, lambda admin: admin.topics.create(name, partitions=3))
    eventually(lambda: led_partitions(address, name), 3)
    if records:
        produce(address, name, records)
    return [TopicPartition(name, index) for index in range(3)]


@contextmanager
def member(address: str, group: str, topic: str, protocol: GroupType, **more: str) -> Iterator[Callable[[], None]]:
    """A consumer of librdkafka's that has all partitions; what it gives lets it go on living."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "group.protocol": str(protocol),
            "client.id": "looked-at",
            "enable.auto.commit": False,
            **more,
        }
    )
    consumer.subscribe([topic])

    def assigned() -> int:
        consumer.poll(0.05)
        return len(consumer.assignment())

    try:
        eventually(assigned, 3, timeout=30)
        yield lambda: consumer.poll(0)
    finally:
        consumer.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_of_either_protocol_is_described(cluster: str, topic_name: str, protocol: GroupType) -> None:
    partitions = topic_of_three(cluster, topic_name)

    async def work(admin: Admin) -> None:
        found = await admin.groups.describe(topic_name)
        assert (found.type, found.state, found.protocol_type) == (protocol, GroupState.STABLE, "consumer")
        assert found.assignor == ("range" if protocol is GroupType.CLASSIC else "uniform")
        [one] = found.members
        assert (one.client_id, one.group_instance_id, one.protocol) == ("looked-at", "static", protocol)
        assert one.assignment == one.target == tuple(partitions)
        assert one.topics == (topic_name,)
        assert one.host.removeprefix("/") == "127.0.0.1"
        epochs = (one.epoch, found.epoch, found.assignment_epoch)
        assert all(epochs) if protocol is GroupType.CONSUMER else epochs == (None, None, None)

    with member(cluster, topic_name, topic_name, protocol, **{"group.instance.id": "static"}):
        administer(cluster, work)


def test_groups_are_listed_by_state_type_and_protocol(cluster: str, topic_name: str) -> None:
    [first, *_] = topic_of_three(cluster, topic_name)
    classic, modern, empty = (f"{topic_name}-{suffix}" for suffix in ("classic", "modern", "empty"))

    async def work(admin: Admin) -> None:
        await admin.offsets.alter(empty, {first: 0})

        async def mine(**filters: Any) -> set[str]:
            return {group.group_id for group in await admin.groups.list(**filters)} & {classic, modern, empty}

        await comes_to(mine, {classic, modern, empty})
        assert await mine(states=[GroupState.STABLE]) == {classic, modern}
        assert await mine(states=[GroupState.EMPTY, GroupState.DEAD]) == {empty}
        assert await mine(types=[GroupType.CONSUMER]) == {modern}
        assert await mine(types=[GroupType.CLASSIC], states=[GroupState.STABLE]) == {classic}
        assert await mine(protocol_types=[""]) == {empty}
        assert await mine(protocol_types=["consumer"]) == {classic, modern}
        [listed] = [group for group in await admin.groups.list() if group.group_id == modern]
        assert (listed.type, listed.state, listed.protocol_type) == (GroupType.CONSUMER, GroupState.STABLE, "consumer")
        several = await admin.groups.describe_many([classic, modern, empty])
        assert [several[group].type for group in (classic, modern)] == PROTOCOLS
        assert several[empty].members == ()

    with (
        member(cluster, classic, topic_name, GroupType.CLASSIC),
        member(cluster, modern, topic_name, GroupType.CONSUMER),
    ):
        administer(cluster, work)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_are_removed_and_the_group_is_deleted(cluster: str, topic_name: str, protocol: GroupType) -> None:
    [first, *_] = topic_of_three(cluster, topic_name)

    async def remove(admin: Admin) -> None:
        with pytest.raises(KafkaError, match="cannot delete group") as caught:
            await admin.groups.delete(topic_name)
        assert caught.value.code is ErrorCode.NON_EMPTY_GROUP
        with pytest.raises(PartlyFailed, match="the group has members") as refused:
            await admin.offsets.alter(topic_name, {first: 1})
        assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
        with pytest.raises(PartlyFailed) as unknown:
            await admin.groups.remove_members(topic_name, members=["nobody"])
        assert unknown.value.errors["nobody"].code is ErrorCode.UNKNOWN_MEMBER_ID

    async def delete(admin: Admin) -> None:
        assert len((await admin.groups.describe(topic_name)).members) == 1  # a static one does not leave by itself
        await admin.groups.remove_members(topic_name, instances=["static"])
        assert (await admin.groups.describe(topic_name)).members == ()
        with pytest.raises(PartlyFailed) as absent:
            await admin.groups.delete_many([topic_name, f"{topic_name}-absent"])
        assert absent.value.done == {topic_name: None}
        assert absent.value.code is ErrorCode.GROUP_ID_NOT_FOUND
        with pytest.raises(KafkaError) as gone:
            await admin.groups.describe(topic_name)
        assert gone.value.code is ErrorCode.GROUP_ID_NOT_FOUND

    with member(cluster, topic_name, topic_name, protocol, **{"group.instance.id": "static"}):
        administer(cluster, remove)
    administer(cluster, delete)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_who_is_removed_is_no_member_any_more(cluster: str, topic_name: str, protocol: GroupType) -> None:
    topic_of_three(cluster, topic_name)

    async def remove(admin: Admin) -> None:
        before = await admin.groups.describe(topic_name)
        await admin.groups.remove_all_members(topic_name, reason="maintenance")
        after = await admin.groups.describe(topic_name)
        if protocol is GroupType.CONSUMER:  # it may be back already, under its own id
            assert (after.epoch or 0) > (before.epoch or 0)
        else:
            assert {each.member_id for each in before.members}.isdisjoint(each.member_id for each in after.members)

    with member(cluster, topic_name, topic_name, protocol):
        administer(cluster, remove)


def test_offsets_are_set_told_and_forgotten(cluster: str, topic_name: str) -> None:
    first, second, third = topic_of_three(cluster, topic_name, records=10)
    noted = OffsetAndMetadata(4, "by hand", 0)

    async def work(admin: Admin) -> None:
        assert await admin.offsets.list(topic_name) == {}
        await admin.offsets.alter(topic_name, {first: noted, second: 0})
        both = {first: noted, second: OffsetAndMetadata(0)}
        assert await admin.offsets.list(topic_name, stable=True) == both
        assert await admin.offsets.list(topic_name, [first, third]) == {first: noted}
        lags = await admin.offsets.lag(topic_name)
        assert {partition: found.lag for partition, found in lags.items()} == {first: 6, second: 0}
        assert (lags[first].committed, lags[first].end_offset) == (noted, 10)
        assert list(lags) == [first, second]
        other = f"{topic_name}-other"
        await admin.offsets.alter(other, {third: 0})
        assert await admin.offsets.list_many({topic_name: None, other: [third]}) == {
            topic_name: both,
            other: {third: OffsetAndMetadata(0)},
        }
        with pytest.raises(PartlyFailed, match="there is no such partition") as caught:
            await admin.offsets.alter(topic_name, {third: 0, TopicPartition(topic_name, 9): 0})
        assert caught.value.done == {third: None}
        await admin.offsets.delete(topic_name, [second, third])

    administer(cluster, work)
    admin = judge(cluster)
    wanted = confluent_kafka.ConsumerGroupTopicPartitions(topic_name)
    found = admin.list_consumer_group_offsets([wanted])[topic_name].result(60).topic_partitions
    assert [(each.topic, each.partition, each.offset) for each in found] == [(topic_name, 0, 4)]


def test_a_group_is_sent_to_a_place(cluster: str, topic_name: str) -> None:
    first, second, _ = topic_of_three(cluster, topic_name, records=10)

    async def work(admin: Admin) -> None:
        planned = await admin.offsets.reset(topic_name, End(), [first, second], dry_run=True)
        assert {partition: (each.before, each.after) for partition, each in planned.items()} == {
            first: (None, 10),
            second: (None, 0),
        }
        assert await admin.offsets.list(topic_name) == {}
        assert await admin.offsets.reset(topic_name, End(), [first, second]) == planned
        again = await admin.offsets.reset(topic_name, Last(3))
        assert {partition: (each.before, each.after) for partition, each in again.items()} == {
            first: (10, 7),
            second: (0, 0),
        }
        await admin.offsets.reset(topic_name, Beginning(), [first])
        assert {p: each.offset for p, each in (await admin.offsets.list(topic_name)).items()} == {first: 0, second: 0}

    administer(cluster, work)


def test_offsets_of_a_topic_in_use_are_not_forgotten(cluster: str, topic_name: str) -> None:
    [first, *_] = topic_of_three(cluster, topic_name)
    administer(cluster, lambda admin: admin.offsets.alter(topic_name, {first: 0}))

    async def forget(admin: Admin) -> None:
        with pytest.raises(PartlyFailed, match="stop its consumers first") as caught:
            await admin.offsets.delete(topic_name, [first])
        assert caught.value.errors[first].code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        with pytest.raises(KafkaError) as absent:
            await admin.offsets.delete(f"{topic_name}-absent", [first])
        assert absent.value.code is ErrorCode.GROUP_ID_NOT_FOUND

    with member(cluster, topic_name, topic_name, GroupType.CLASSIC):
        administer(cluster, forget)
