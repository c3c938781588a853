"""Members of a group share partitions, come and go, crash, are too slow: on Barnabas and on Apache Kafka.

Much of it is waiting, so that each test plays its scene in several protocols at once.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupType
from confluent_kafka.admin import AdminClient

from barnabas import Consumer, TopicPartition
from barnabas.client.errors import CommitFailed
from tests.clients.conftest import GROUP_SETTINGS
from tests.clients.group_readers import (
    CONSUMER,
    COOPERATIVE,
    EAGER,
    QUICK,
    Options,
    Reader,
    add_partitions,
    create_topic,
    new_group,
    produce,
    shares,
    until,
)

SESSION_S = int(GROUP_SETTINGS["group.consumer.session.timeout.ms"]) / 1000
SHORT_SESSION: Options = {**EAGER, "session_timeout_ms": int(SESSION_S * 1000)}


def play(scene: Callable[[Options], Coroutine[Any, Any, None]], protocols: Iterable[Options]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(90):
            await asyncio.gather(*map(scene, protocols))

    asyncio.run(bounded())


def test_records_are_read_once_while_members_come_and_go(group_cluster: str) -> None:
    async def scene(options: Options) -> None:
        topic, group = create_topic(group_cluster, 6), new_group()
        produced = produce(group_cluster, topic, 6, 300)
        readers = [Reader(group_cluster, group, 0.001, topics=[topic], **options) for _ in range(3)]
        async with readers[0]:
            await until(lambda: len(readers[0].seen) > 100)
            async with readers[1]:
                await until(lambda: shares(*readers[:2]) == [3, 3] and len(readers[1].seen) > 100)
                async with readers[2]:
                    await until(lambda: shares(*readers) == [2, 2, 2])
            await until(lambda: len(readers[0].owned) == 6)
            await until(lambda: sum(len(reader.seen) for reader in readers) >= len(produced))
        assert sorted(place for reader in readers for place in reader.seen) == produced
        async with Consumer(group_cluster, group=group) as reader:
            committed = await reader.committed(*(TopicPartition(topic, partition) for partition in range(6)))
        assert [place.offset for place in committed.values() if place] == [300] * 6

    play(scene, [EAGER, COOPERATIVE, CONSUMER])


def test_partitions_of_a_member_that_crashed_go_to_the_others(group_cluster: str) -> None:
    async def scene(options: Options) -> None:
        topic, group = create_topic(group_cluster, 4), new_group()
        crashing = Reader(group_cluster, group, topics=[topic], **options)
        async with Reader(group_cluster, group, topics=[topic], **options) as left:
            await crashing.__aenter__()
            await until(lambda: shares(crashing, left) == [2, 2])
            await crashing.crash()
            await until(lambda: len(left.owned) == 4)

    play(scene, [SHORT_SESSION, CONSUMER])


def test_a_static_member_comes_back_to_its_partitions_and_disturbs_nobody(group_cluster: str) -> None:
    async def scene(options: Options) -> None:
        topic, group = create_topic(group_cluster, 4), new_group()
        produced = produce(group_cluster, topic, 4, 20)

        def one() -> Reader:
            return Reader(group_cluster, group, topics=[topic], group_instance_id="one", **options)

        async with Reader(group_cluster, group, topics=[topic], group_instance_id="two", **options) as other:
            async with one() as first:
                await until(lambda: shares(first, other) == [2, 2])
                await until(lambda: len(first.seen) + len(other.seen) == len(produced))
                owned = set(first.owned)
            before = list(other.changes)
            async with one() as again:
                await until(lambda: again.owned == owned)
            assert again.seen == []
            assert other.changes == before

    play(scene, [EAGER, COOPERATIVE, CONSUMER])


def test_a_member_that_blocks_its_loop_keeps_its_place(group_cluster: str) -> None:
    async def scene(_: Options) -> None:
        topic = create_topic(group_cluster, 2)
        async with (
            Reader(group_cluster, new_group(), topics=[topic], **SHORT_SESSION) as classic,
            Reader(group_cluster, new_group(), topics=[topic], **CONSUMER) as new,
        ):
            await until(lambda: shares(classic, new) == [2, 2])
            before = [reader.consumer.group_metadata() for reader in (classic, new)]
            time.sleep(SESSION_S + 0.5)  # noqa: ASYNC251  # blocking is the point
            produced = produce(group_cluster, topic, 2, 5)
            for reader in (classic, new):
                await until(partial(saw_all, reader, produced))
                await reader.consumer.commit()
                assert reader.changes == [("assigned", [0, 1])]
            assert [reader.consumer.group_metadata() for reader in (classic, new)] == before

    play(scene, [{}])


def test_a_caller_that_is_too_slow_loses_its_place_and_gets_it_back(group_cluster: str) -> None:
    async def scene(options: Options) -> None:
        topic, group = create_topic(group_cluster, 2), new_group()
        produced = produce(group_cluster, topic, 2, 10)
        async with Reader(group_cluster, group, topics=[topic], max_poll_interval_ms=2000, **options) as slow:
            await until(lambda: len(slow.seen) == len(produced))
            async with Reader(group_cluster, group, topics=[topic], **options) as lively:
                await until(lambda: shares(slow, lively) == [1, 1])
                await slow.stop()
                await until(lambda: len(lively.owned) == 2)
                with pytest.raises(CommitFailed, match="max_poll_interval_ms=2000"):
                    await slow.consumer.commit({TopicPartition(topic, 0): 3})
                assert slow.changes[-1][0] != "lost"  # it learns of it when it comes back
                slow.start()
                await until(lambda: shares(slow, lively) == [1, 1])
                assert "lost" in [what for what, _ in slow.changes]
            await until(lambda: len(slow.owned) == 2)

    play(scene, [EAGER, COOPERATIVE, CONSUMER])


def test_topics_and_partitions_that_appear_are_read(group_cluster: str) -> None:
    async def scene(options: Options) -> None:
        prefix, group = new_group(), new_group()
        first = create_topic(group_cluster, 1, f"{prefix}-one")
        quick = {**options, "metadata_max_age_ms": 300}
        async with (
            Reader(group_cluster, group, pattern=f"{prefix}-.*", **quick) as reader,
            Reader(group_cluster, new_group(), topics=[f"{prefix}-two"], **quick) as early,
        ):
            await until(lambda: reader.topics == {first})
            second = create_topic(group_cluster, 1, f"{prefix}-two")
            produce(group_cluster, second, 1, 3)
            add_partitions(group_cluster, first, 3)
            await until(lambda: reader.topics == {first, second})
            await until(lambda: len(reader.seen) == len(early.seen) == 3)
            await until(lambda: reader.owned == {0, 1, 2})

    play(scene, [EAGER, COOPERATIVE, CONSUMER])


def test_a_group_goes_over_from_the_classic_protocol_to_the_consumer_protocol_and_back(group_cluster: str) -> None:
    async def scene(_: Options) -> None:
        topic, group = create_topic(group_cluster, 4), new_group()
        produced = produce(group_cluster, topic, 4, 50)
        async with Reader(group_cluster, group, topics=[topic], **QUICK) as classic:
            await until(lambda: len(classic.owned) == 4)
            assert group_type(group_cluster, group) == ConsumerGroupType.CLASSIC
            new = await Reader(group_cluster, group, topics=[topic]).__aenter__()
            await until(lambda: shares(classic, new) == [2, 2])
            assert group_type(group_cluster, group) == ConsumerGroupType.CONSUMER
        await until(lambda: len(new.owned) == 4)
        await until(lambda: len(new.seen) + len(classic.seen) >= len(produced))
        async with Reader(group_cluster, group, topics=[topic], **QUICK) as late:
            await until(lambda: shares(new, late) == [2, 2])
            await new.__aexit__()
            await until(lambda: len(late.owned) == 4)
            assert group_type(group_cluster, group) == ConsumerGroupType.CLASSIC
            assert late.seen == []

    play(scene, [{}])


def saw_all(reader: Reader, produced: list[tuple[int, int]]) -> bool:
    return sorted(reader.seen) == produced


def group_type(address: str, group: str) -> ConsumerGroupType:
    admin = AdminClient({"bootstrap.servers": address})
    groups = admin.list_consumer_groups().result(60).valid
    return next(each.type for each in groups if each.group_id == group)


def test_a_member_that_is_closed_while_it_joins_leaves_no_trace(group_cluster: str) -> None:
    async def scene(options: Options) -> None:
        topic, group = create_topic(group_cluster, 2), new_group()
        async with Reader(group_cluster, group, topics=[topic], **options) as reader:
            await until(lambda: len(reader.owned) == 2)
            for delay in (0, 0.01, 0.1, 0.5):
                async with Consumer(group_cluster, group=group, topics=[topic], **options):
                    await asyncio.sleep(delay)
                assert len(await asyncio.to_thread(members_of, group_cluster, group)) == 1
            await until(lambda: len(reader.owned) == 2)

    play(scene, [EAGER, COOPERATIVE, CONSUMER])


def members_of(address: str, group: str) -> list[Any]:
    admin = AdminClient({"bootstrap.servers": address})
    return list(admin.describe_consumer_groups([group])[group].result(60).members)


def test_one_thread_serves_all_members_and_ends_with_the_last(group_cluster: str) -> None:
    def threads() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]

    async def scene(_: Options) -> None:
        topic = create_topic(group_cluster, 1)
        before = threads()
        async with Reader(group_cluster, new_group(), topics=[topic]) as one:
            async with Reader(group_cluster, new_group(), topics=[topic]) as other:
                await until(lambda: shares(one, other) == [1, 1])
                assert sorted(threads()) == sorted([*before, "barnabas-groups"])
            await until(lambda: shares(one) == [1])
        assert threads() == before

    play(scene, [{}])
