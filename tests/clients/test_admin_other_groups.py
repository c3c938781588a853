"""Share groups and groups of Kafka Streams, which Apache Kafka has: with a share consumer of Kafka's in them."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from barnabas import Admin, KafkaError, TopicPartition
from barnabas.client.admin.groups import GroupState, GroupType
from barnabas.client.admin.streams_groups import StreamsGroupDescription, Task, Tasks, _read
from barnabas.client.outcomes import PartlyFailed
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k89_streams_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    StreamsGroupDescribeResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from tests.clients.admin_work import administer, comes_to, led_partitions, produce
from tests.peers import Broker, eventually, kafka_command


@contextmanager
def share_consumer(address: str, group: str, topic: str) -> Iterator[None]:
    arguments = ("--bootstrap-server", address, "--group-id", group, "--topic", topic)
    command = kafka_command("org.apache.kafka.tools.VerifiableShareConsumer", *arguments)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def test_a_share_group_is_described_and_sent_elsewhere(kafka: Broker, topic_name: str) -> None:
    first, second = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)
    administer(kafka.address, lambda admin: admin.topics.create(topic_name, partitions=2))
    eventually(lambda: led_partitions(kafka.address, topic_name), 2)

    async def while_it_reads(admin: Admin) -> None:
        async def assigned() -> tuple[TopicPartition, ...]:
            try:
                found = await admin.groups.describe(topic_name)
            except KafkaError:  # it is not there yet
                return ()
            return tuple(partition for member in found.members for partition in member.assignment)

        await comes_to(assigned, (first, second))
        found = await admin.groups.describe(topic_name)
        assert (found.type, found.state) == (GroupType.SHARE, GroupState.STABLE)
        [member] = found.members
        assert (member.topics, member.protocol) == ((topic_name,), GroupType.SHARE)
        with pytest.raises(KafkaError, match="cannot alter share group") as caught:
            await admin.share_groups.alter_offsets(topic_name, {first: 0})
        assert caught.value.code is ErrorCode.NON_EMPTY_GROUP

    async def afterwards(admin: Admin) -> None:
        [listed] = [group for group in await admin.groups.list(types=[GroupType.SHARE]) if group.group_id == topic_name]
        assert listed.type is GroupType.SHARE
        await comes_to(lambda: state(admin), GroupState.EMPTY)
        await admin.share_groups.alter_offsets(topic_name, {first: 3, second: 0})

        async def starts() -> dict[TopicPartition, int]:
            found = await admin.share_groups.list_offsets(topic_name)
            return {partition: offset.start_offset for partition, offset in found.items()}

        await comes_to(starts, {first: 3, second: 0})
        assert (await admin.share_groups.list_offsets(topic_name, [first])).keys() == {first}
        with pytest.raises(PartlyFailed) as caught:
            await admin.share_groups.alter_offsets(topic_name, {TopicPartition("absent", 0): 0, first: 4})
        assert caught.value.done == {first: None}
        await admin.share_groups.delete_offsets(topic_name, [topic_name])
        await admin.groups.delete(topic_name)

    async def state(admin: Admin) -> GroupState:
        return (await admin.groups.describe(topic_name)).state

    with share_consumer(kafka.address, topic_name, topic_name):
        administer(kafka.address, while_it_reads)
    produce(kafka.address, topic_name, 5)
    administer(kafka.address, afterwards)


def test_a_streams_group_that_is_not_there_is_not_found(kafka: Broker, topic_name: str) -> None:
    async def work(admin: Admin) -> None:
        with pytest.raises(KafkaError, match=f"cannot describe streams group '{topic_name}'") as caught:
            await admin.streams_groups.describe(topic_name)
        assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND

    administer(kafka.address, work)


def test_a_streams_group_is_read_with_its_topology_and_tasks() -> None:
    assignment = Assignment(active_tasks=[TaskIds("0", [1, 0])], standby_tasks=[TaskIds("1", [2])])
    member = Member("m", 4, None, None, "client", "/10.0.0.1", process_id="p", assignment=assignment)
    topology = Topology(1, [Subtopology("0", ["words"], [], [TopicInfo("counts", 2, 1)], [])])
    group = DescribedGroup(0, None, "g", "Stable", 4, 4, topology, [member])
    empty = DescribedGroup(0, None, "e", "Empty")
    found = _read(StreamsGroupDescribeResponse(groups=[group, empty]))
    assert isinstance(described := found["g"], StreamsGroupDescription)
    assert (described.state, described.epoch) == (GroupState.STABLE, 4)
    assert [(each.subtopology_id, each.state_changelog_topics) for each in described.topology] == [("0", ("counts",))]
    assert described.members[0].assignment == Tasks((Task("0", 0), Task("0", 1)), (Task("1", 2),), ())
    assert described.members[0].target == Tasks((), (), ())
    assert isinstance(without := found["e"], StreamsGroupDescription)
    assert (without.topology, without.members) == ((), ())
