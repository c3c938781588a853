"""Topics, partitions and records as the admin makes, tells and removes them; librdkafka's admin looks on."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import ConfigResource

from barnabas import Admin, KafkaError, TopicPartition
from barnabas.client.admin.partitions import NewPartitions
from barnabas.client.admin.records import ALL
from barnabas.client.admin.topics import NewTopic
from barnabas.client.list_offsets import EARLIEST, LATEST, MAX_TIMESTAMP, FoundOffset, Isolation
from barnabas.client.outcomes import PartlyFailed
from barnabas.core.errors import ErrorCode
from tests.clients.admin_work import administer, comes_to, judge, parted, produce
from tests.peers import eventually


def described(address: str, *names: str) -> dict[str, int]:
    """Topics that another's admin finds, with the number of their partitions."""
    found = judge(address).list_topics(timeout=60).topics
    return {name: len(found[name].partitions) for name in names if name in found}


def configs_of(other: Any, topic: str) -> dict[str, Any]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found: dict[str, Any] = other.describe_configs([resource])[resource].result(60)
    return found


def test_a_created_topic_is_as_it_was_ordered(cluster: str, topic_name: str) -> None:
    async def work(admin: Admin) -> bytes:
        created = await admin.topics.create(topic_name, partitions=3, configs={"retention.ms": "7000"})
        assert (created.name, created.partitions, created.replication_factor) == (topic_name, 3, 1)
        return created.topic_id

    topic_id = administer(cluster, work)
    eventually(lambda: described(cluster, topic_name), {topic_name: 3})
    other = judge(cluster)
    found = other.describe_topics(confluent_kafka.TopicCollection([topic_name]))[topic_name].result(60)
    assert b64decode(f"{found.topic_id}==") == topic_id
    assert configs_of(other, topic_name)["retention.ms"].value == "7000"


def test_replicas_are_placed_by_hand(cluster: str, topic_name: str) -> None:
    async def work(admin: Admin) -> None:
        here = (await admin.cluster.describe()).brokers[0].node_id
        assert (await admin.topics.create(topic_name, assignment=[[here], [here]])).partitions == 2
        await admin.partitions.create(topic_name, 3, assignment=[[here]])
        with pytest.raises(KafkaError) as caught:
            await admin.partitions.create(topic_name, 4, assignment=[[12345]])
        assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        await comes_to(lambda: replicas(admin), [(here,)] * 3)

    async def replicas(admin: Admin) -> list[tuple[int, ...]]:
        return [each.replicas for each in (await admin.topics.describe(topic_name)).partitions]

    administer(cluster, work)


def test_validation_changes_nothing(cluster: str, topic_name: str) -> None:
    other = f"{topic_name}-other"

    async def work(admin: Admin) -> None:
        await admin.topics.create(topic_name, partitions=1)
        assert (await admin.topics.create(other, partitions=5, validate_only=True)).partitions == 5
        await admin.partitions.create(topic_name, 9, validate_only=True)
        with pytest.raises(KafkaError) as caught:
            await admin.topics.create(topic_name, validate_only=True)
        assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS

    administer(cluster, work)
    eventually(lambda: described(cluster, topic_name, other), {topic_name: 1})


def test_one_topic_of_several_fails_by_itself(cluster: str, topic_name: str) -> None:
    names = [f"{topic_name}-{number}" for number in range(3)]

    async def work(admin: Admin) -> None:
        await admin.topics.create(names[1], partitions=1)
        with pytest.raises(PartlyFailed, match=r"1 of 3 failed: .*already exists") as caught:
            await admin.topics.create_many([NewTopic(name, partitions=2) for name in names])
        assert caught.value.errors.keys() == {names[1]}
        assert caught.value.errors[names[1]].code is caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        assert {name: created.partitions for name, created in caught.value.done.items()} == {names[0]: 2, names[2]: 2}

        await comes_to(lambda: listed(admin), set(names))
        with pytest.raises(PartlyFailed) as refused:
            await admin.partitions.create_many({names[0]: NewPartitions(4), names[1]: NewPartitions(1)})
        assert refused.value.errors.keys() == {names[1]}
        with pytest.raises(PartlyFailed, match="does not exist") as unknown:
            await admin.topics.describe_many([*names, "no-such-topic"])
        assert parted(unknown.value) == (set(names), {"no-such-topic"})
        with pytest.raises(PartlyFailed) as gone:
            await admin.topics.delete_many([*names, "no-such-topic"])
        assert parted(gone.value) == (set(names), {"no-such-topic"})

    async def listed(admin: Admin) -> set[str]:
        return {topic.name for topic in await admin.topics.list()} & set(names)

    administer(cluster, work)
    eventually(lambda: len(described(cluster, *names)), 0)


def test_topics_are_described_page_by_page(cluster: str, topic_name: str) -> None:
    names = [f"{topic_name}-{number}" for number in range(3)]

    async def work(admin: Admin) -> None:
        await admin.topics.create_many([NewTopic(name, partitions=5) for name in names])

        async def paged() -> dict[str, list[int]]:
            try:
                found = await admin.topics.describe_many(names, page_partitions=2)
            except PartlyFailed:  # not known yet
                return {}
            return {name: [each.partition for each in topic.partitions] for name, topic in found.items()}

        await comes_to(paged, {name: list(range(5)) for name in names})
        whole = await admin.topics.describe_many()
        assert set(names) <= whole.keys()
        assert await admin.topics.describe_many([]) == {}
        assert whole[names[0]].partitions[0].eligible_leader_replicas == ()

    administer(cluster, work)


def test_a_topic_is_found_and_deleted_by_its_id(cluster: str, topic_name: str) -> None:
    unknown = b"\x07" * 16

    async def work(admin: Admin) -> None:
        topic_id = (await admin.topics.create(topic_name, partitions=2)).topic_id

        async def name_of_it() -> str | None:
            try:
                return (await admin.topics.describe_by_id([topic_id]))[topic_id].name
            except PartlyFailed:
                return None

        await comes_to(name_of_it, topic_name)
        with pytest.raises(PartlyFailed) as caught:
            await admin.topics.describe_by_id([topic_id, unknown])
        assert caught.value.errors[unknown].code is ErrorCode.UNKNOWN_TOPIC_ID
        with pytest.raises(PartlyFailed) as caught:
            await admin.topics.delete_by_id([topic_id, unknown])
        assert parted(caught.value) == ({topic_id}, {unknown})
        await comes_to(name_of_it, None)

    administer(cluster, work)
    eventually(lambda: len(described(cluster, topic_name)), 0)


def test_offsets_are_told_by_place_and_by_time(cluster: str, topic_name: str) -> None:
    first, second = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)
    administer(cluster, lambda admin: admin.topics.create(topic_name, partitions=2))
    eventually(lambda: described(cluster, topic_name), {topic_name: 2})
    produce(cluster, topic_name, 10, timestamp_ms=1_000_000)

    async def work(admin: Admin) -> None:
        async def offset(timestamp_ms: int) -> FoundOffset:
            return (await admin.partitions.list_offsets({first: timestamp_ms}))[first]

        assert (await offset(EARLIEST)).offset == 0
        assert (await offset(LATEST)).offset == 10
        assert await offset(1_004_500) == (5, 1_005_000)
        assert await offset(2_000_000) == (-1, -1)
        assert await offset(MAX_TIMESTAMP) == (9, 1_009_000)
        both = await admin.partitions.list_offsets({first: LATEST, second: LATEST}, Isolation.READ_COMMITTED)
        assert {partition: found.offset for partition, found in both.items()} == {first: 10, second: 0}
        with pytest.raises(PartlyFailed, match=f"topic '{topic_name}' has no partition 7") as caught:
            await admin.partitions.list_offsets({first: LATEST, TopicPartition(topic_name, 7): LATEST})
        assert caught.value.done[first].offset == 10

    administer(cluster, work)


def test_records_are_deleted_up_to_an_offset_or_all(cluster: str, topic_name: str) -> None:
    first, second = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)
    administer(cluster, lambda admin: admin.topics.create(topic_name, partitions=2))
    eventually(lambda: described(cluster, topic_name), {topic_name: 2})
    produce(cluster, topic_name, 10)
    produce(cluster, topic_name, 4, partition=1)

    async def work(admin: Admin) -> None:
        assert await admin.records.delete({first: 6}) == {first: 6}
        with pytest.raises(PartlyFailed) as caught:
            await admin.records.delete({first: 60, second: ALL})
        assert caught.value.errors[first].code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert caught.value.done == {second: 4}
        states = await admin.partitions.states(await admin.topics.describe(topic_name))
        assert [(state.log_start_offset, state.end_offset) for state in states] == [(6, 10), (4, 4)]

    administer(cluster, work)


def test_a_topic_that_is_not_there_is_named_soon(cluster: str, topic_name: str) -> None:
    async def work(admin: Admin) -> None:
        with pytest.raises(KafkaError, match=f"topic '{topic_name}' does not exist") as caught:
            await admin.topics.describe(topic_name)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(KafkaError, match=f"cannot delete topic '{topic_name}': it does not exist"):
            await admin.topics.delete(topic_name)

    administer(cluster, work)
