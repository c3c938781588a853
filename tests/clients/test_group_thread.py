"""The thread of memberships: forked processes, and callers that vanish."""

from __future__ import annotations

import asyncio
import gc
import threading

from barnabas.client.client import connect
from barnabas.client.group.member import GroupMember
from barnabas.client.group.options import GroupOptions
from barnabas.client.group.values import Subscription
from tests.clients.group_readers import Reader, create_topic, new_group, until
from tests.clients.programs import run
from tests.peers import eventually


def test_a_forked_process_has_a_thread_of_its_own_and_leaves_its_parents_alone(group_cluster: str) -> None:
    program = """
    import multiprocessing, warnings
    warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, from Python 3.12 on

    async def read(group, value):
        async with Consumer(address, topics=[topic], group=group, auto_offset_reset="earliest") as consumer:
            async for record in consumer:
                print(group[-5:], record.value, flush=True)
                if record.value == value:
                    return

    def child():
        asyncio.run(read(topic + "-child", b"before"))

    async def main():
        async with (
            Producer(address) as producer,
            Consumer(address, topics=[topic], group=topic, auto_offset_reset="earliest") as consumer,
        ):
            await producer.send(topic, b"before")
            print((await anext(aiter(consumer))).value, flush=True)
            forked = multiprocessing.get_context("fork").Process(target=child)
            forked.start()
            await asyncio.to_thread(forked.join, 60)
            print(forked.exitcode)
            await producer.send(topic, b"after")
            print((await anext(aiter(consumer))).value, flush=True)
    """
    topic = create_topic(group_cluster, 1)
    assert run(program, group_cluster, topic) == "b'before'\nchild b'before'\n0\nb'after'\n"


def test_the_membership_of_a_caller_whose_loop_is_gone_ends_by_itself(group_cluster: str) -> None:
    topic, group = create_topic(group_cluster, 1), new_group()

    async def vanish() -> None:
        async with connect(group_cluster) as client:
            options = GroupOptions(group_id=group, max_poll_interval_ms=5000)
            member = GroupMember(client, options, Subscription(frozenset([topic])))
            await member.start()
            await asyncio.wait_for(member.pending.wait(), 60)

    async def take_over() -> None:
        async with Reader(group_cluster, group, topics=[topic]) as reader:
            await until(lambda: reader.owned)

    def has_thread() -> bool:
        gc.collect()  # nothing of the caller is left, and nobody else holds the membership
        return "barnabas-groups" in [thread.name for thread in threading.enumerate()]

    asyncio.run(vanish())
    assert has_thread()
    asyncio.run(take_over())
    eventually(has_thread, False)
