"""A program that uses a client ends when it should, at Ctrl-C too, and leaves nothing pending."""

from __future__ import annotations

import pytest

from tests.clients.programs import interrupt_after, run, started
from tests.peers import Broker

POSTING = """
async def main():
    async with Producer(address) as producer:
        await producer.send(topic, b"first")
        print("posting", flush=True)
        while True:
            producer.post(topic, b"next")
            await asyncio.sleep(0.001)
"""
SENDING_IN_A_TRANSACTION = """
async def main():
    async with Producer(address, transactional_id=topic) as producer:
        async with producer.transaction():
            await producer.send(topic, b"first")
            print("in a transaction", flush=True)
            await asyncio.sleep(60)
"""
READING_BY_HAND = """
from barnabas import TopicPartition
async def main():
    async with Producer(address) as producer:
        await producer.send(topic, b"first")
    async with Consumer(address, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        async for record in consumer:
            print("reading", flush=True)
"""
READING_IN_A_GROUP = """
async def main():
    async with Producer(address) as producer:
        await producer.send(topic, b"first")
    async with Consumer(address, topics=[topic], group=topic, auto_offset_reset="earliest") as consumer:
        async for record in consumer:
            print("reading", flush=True)
"""
BUSY_IN_A_GROUP = """
import time
async def main():
    async with Producer(address) as producer:
        await producer.send(topic, b"first")
    async with Consumer(address, topics=[topic], group=topic, auto_offset_reset="earliest") as consumer:
        async for record in consumer:
            print("reading", flush=True)
            time.sleep(60)
"""


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("posting", POSTING),
        ("in a transaction", SENDING_IN_A_TRANSACTION),
        ("reading", READING_BY_HAND),
    ],
    ids=["producer", "transaction", "consumer"],
)
def test_ctrl_c_ends_a_program_cleanly(cluster: str, topic_name: str, line: str, program: str) -> None:
    assert interrupt_after(line, program, cluster, topic_name) == ""


def test_a_program_that_blocks_its_loop_is_interrupted_by_a_second_ctrl_c(broker: Broker, topic_name: str) -> None:
    """The first one waits for the loop, as asyncio has it."""
    assert interrupt_after("reading", BUSY_IN_A_GROUP, broker.address, topic_name, times=2) == ""


def test_a_member_that_is_interrupted_leaves_its_group_at_once(cluster: str, topic_name: str) -> None:
    interrupt_after("reading", READING_IN_A_GROUP, cluster, topic_name)
    program = """
    from barnabas import Admin
    async def main():
        async with Admin(address) as admin:
            print(len((await admin.groups.describe(topic)).members))
    """
    assert run(program, cluster, topic_name) == "0\n"


def test_what_was_posted_is_delivered_before_a_program_ends(cluster: str, topic_name: str) -> None:
    program = """
    async def main():
        async with Producer(address) as producer:
            for number in range(1000):
                producer.post(topic, b"%d" % number)
        async with Consumer(address, topics=[topic], group=topic, auto_offset_reset="earliest") as consumer:
            values = []
            async for record in consumer:
                values.append(int(record.value))
                if len(values) == 1000:
                    break
        print(values == list(range(1000)))
    """
    assert run(program, cluster, topic_name) == "True\n"


def test_a_failing_program_tells_its_own_error_and_leaves_nothing_pending(broker: Broker, topic_name: str) -> None:
    program = """
    async def main():
        async with (
            Producer(address) as producer,
            Consumer(address, topics=[topic], group=topic, auto_offset_reset="earliest") as consumer,
        ):
            await producer.send(topic, b"first")
            producer.post(topic, b"second")
            async for record in consumer:
                raise LookupError("of the program")
    try:
        asyncio.run(main())
    except LookupError as error:
        print(error)
    """
    assert run(program, broker.address, topic_name) == "of the program\n"


def test_a_client_that_nobody_closed_does_not_keep_a_program_from_ending(broker: Broker, topic_name: str) -> None:
    program = """
    async def main():
        producer = await Producer(address).__aenter__()
        consumer = await Consumer(address, topics=[topic], group=topic, auto_offset_reset="earliest").__aenter__()
        await producer.send(topic, b"first")
        async for record in consumer:
            print(record.value)
            break
    """
    with started(program, broker.address, topic_name) as process:
        output, errors = process.communicate(timeout=30)
    assert output == "b'first'\n"
    assert "Traceback" not in errors
