"""What a group commits, and what it refuses, on Barnabas and on Apache Kafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from barnabas import Consumer, OffsetAndMetadata, TopicPartition
from barnabas.client.client import connect
from barnabas.client.errors import CommitFailed
from barnabas.client.group.member import GroupMember
from barnabas.client.group.options import GroupOptions
from barnabas.client.group.values import Subscription
from barnabas.core.errors import ErrorCode, KafkaError
from tests.clients.conftest import GROUP_SETTINGS
from tests.clients.group_readers import (
    CONSUMER,
    EAGER,
    Options,
    Reader,
    create_topic,
    new_group,
    produce,
    shares,
    until,
)
from tests.peers import BarnabasServer

both_protocols = pytest.mark.parametrize("options", [EAGER, CONSUMER], ids=["classic", "consumer"])


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work

    asyncio.run(bounded())


@both_protocols
def test_who_is_no_member_cannot_commit_for_a_group_that_has_some(options: Options, group_cluster: str) -> None:
    async def work() -> None:
        topic, group = create_topic(group_cluster, 1), new_group()
        place = {TopicPartition(topic, 0): OffsetAndMetadata(0, "a note")}
        async with Consumer(group_cluster, group=group) as outsider:
            await outsider.commit(place)
            assert await outsider.committed(*place) == place
            async with Reader(group_cluster, group, topics=[topic], **options) as reader:
                await until(lambda: reader.owned)
                with pytest.raises(CommitFailed, match="give that consumer a group of its own") as caught:
                    await outsider.commit({TopicPartition(topic, 0): 1})
                assert not caught.value.retriable
                assert await outsider.committed(*place) == place

    run(work())


def test_offsets_of_a_topic_that_is_gone_are_refused_and_none_are_known(group_cluster: str) -> None:
    async def work() -> None:
        nowhere = TopicPartition(f"{new_group()}-gone", 0)
        async with Consumer(group_cluster, group=new_group()) as consumer:
            assert await consumer.committed(nowhere) == {nowhere: None}
            with pytest.raises(KafkaError) as caught:
                await consumer.commit({nowhere: 1})
            assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(work())


@both_protocols
def test_a_change_that_is_not_done_keeps_the_partition_and_its_commits(options: Options, group_cluster: str) -> None:
    """Others wait for it; the member commits meanwhile, however often the group moves on."""

    async def work() -> None:
        topic, group = create_topic(group_cluster, 2), new_group()
        async with connect(group_cluster) as client:
            chosen = GroupOptions(group_id=group, **options)
            slow = GroupMember(client, chosen, Subscription(frozenset([topic])))
            await slow.start()
            await slow.pending.wait()
            change = slow.take_change()
            assert change is not None
            assert slow.take_change() is None
            slow.done(change)
            async with Reader(group_cluster, group, topics=[topic], **options) as other:
                await slow.pending.wait()
                giving_up = slow.take_change()
                assert giving_up is not None
                assert giving_up.revoked
                begun = time.monotonic()
                while time.monotonic() < begun + 1:
                    slow.polled()
                    await slow.commit({each: OffsetAndMetadata(7) for each in giving_up.revoked})
                    assert not set(other.owned) & {each.partition for each in giving_up.revoked}
                    await asyncio.sleep(0.1)
                slow.done(giving_up)
                await until(lambda: other.owned)
                await slow.close()
                await until(lambda: len(other.owned) == 2)

    run(work())


@pytest.mark.parametrize(
    ("options", "code"),
    [(EAGER, ErrorCode.FENCED_INSTANCE_ID), (CONSUMER, ErrorCode.UNRELEASED_INSTANCE_ID)],
    ids=["classic", "consumer"],
)
def test_two_static_members_of_one_name_are_an_error(options: Options, code: ErrorCode, group_cluster: str) -> None:
    async def work() -> None:
        topic, group = create_topic(group_cluster, 1), new_group()
        static = {**options, "topics": [topic], "group": group, "group_instance_id": "same"}
        async with Consumer(group_cluster, **static) as older:
            while not older.assignment():
                await older.poll(50)
            async with Consumer(group_cluster, **static) as newer:
                with pytest.raises(KafkaError, match="group_instance_id='same'") as caught:
                    await poll_for_ever(newer, older)
            assert caught.value.code == code

    run(work())


async def poll_for_ever(*consumers: Consumer) -> None:
    while True:
        for consumer in consumers:
            await consumer.poll(50)


def test_a_group_outlives_its_coordinator(tmp_path: Path) -> None:
    async def work() -> None:
        with BarnabasServer(tmp_path / "data", GROUP_SETTINGS) as server:
            address, topic = server.address, create_topic(server.address, 1)
            readers = [Reader(address, new_group(), topics=[topic], **options) for options in (EAGER, CONSUMER)]
            for reader in readers:
                await reader.__aenter__()
            await until(lambda: shares(*readers) == [1, 1])
            server.kill()
        with BarnabasServer(tmp_path / "data", GROUP_SETTINGS, port=int(address.rpartition(":")[2])):
            produced = produce(address, topic, 1, 5)
            await until(lambda: all(reader.seen == produced for reader in readers))
            for reader in readers:
                await reader.__aexit__()
                assert [what for what, _ in reader.changes] == ["assigned", "revoked"]

    run(work())
