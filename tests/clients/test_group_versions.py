"""Groups on brokers that speak older versions of the protocol."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from barnabas import TopicPartition
from barnabas.net.channel import Channel
from barnabas.wire.registry import api
from tests.clients.group_readers import COOPERATIVE, Reader, create_topic, new_group, produce, shares, until
from tests.peers import Broker

GROUP_APIS = (8, 9, 10, 11, 12, 13, 14)


@pytest.mark.parametrize("chance", [None, 1, 2], ids=["oldest", "some", "others"])
def test_a_group_works_in_whatever_versions_the_broker_has(
    chance: int | None, group_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(chance)
    newest = {
        key: api(key).min_version if chance is None else random.randint(api(key).min_version, api(key).max_version)
        for key in GROUP_APIS
    }
    negotiate = Channel._negotiate

    async def negotiate_less(channel: Channel) -> None:
        await negotiate(channel)
        channel.versions.update({key: (channel.versions[key][0], highest) for key, highest in newest.items()})

    monkeypatch.setattr(Channel, "_negotiate", negotiate_less)
    address = group_broker.address
    topic, group = create_topic(address, 2), new_group()
    produced = produce(address, topic, 2, 20)

    async def work() -> None:
        async with asyncio.timeout(60), Reader(address, group, topics=[topic], **COOPERATIVE) as first:
            await until(lambda: len(first.seen) == len(produced))
            async with Reader(address, group, topics=[topic], **COOPERATIVE) as second:
                await until(lambda: shares(first, second) == [1, 1])
            await until(lambda: shares(first) == [2])
            await first.consumer.commit()
            partitions = [TopicPartition(topic, number) for number in range(2)]
            committed = await first.consumer.committed(*partitions)
            assert [place.offset for place in committed.values() if place] == [20, 20]
            assert sorted(first.seen + second.seen) == produced

    asyncio.run(work())
