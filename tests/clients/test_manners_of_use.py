"""A client used in a way that cannot work says so at once; one that is cancelled loses nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

from barnabas import Admin, Consumer, Producer, TopicPartition
from barnabas.client.errors import NotOpen, WrongLoop
from tests.clients.programs import run

USES: dict[str, Callable[[Producer, Consumer, Admin], Any]] = {
    "post": lambda producer, consumer, admin: producer.post("t", b""),
    "send": lambda producer, consumer, admin: producer.send("t", b""),
    "send_many": lambda producer, consumer, admin: producer.send_many("t", [b""]),
    "flush": lambda producer, consumer, admin: producer.flush(),
    "poll": lambda producer, consumer, admin: consumer.poll(),
    "iteration": lambda producer, consumer, admin: anext(aiter(consumer)),
    "batches": lambda producer, consumer, admin: anext(aiter(consumer.batches())),
    "commit": lambda producer, consumer, admin: consumer.commit(),
    "admin": lambda producer, consumer, admin: admin.groups.list(),
}


async def use(how: str, producer: Producer, consumer: Consumer, admin: Admin) -> None:
    async with asyncio.timeout(60):
        result = USES[how](producer, consumer, admin)
        if hasattr(result, "__await__"):
            await result


@pytest.mark.parametrize("how", USES)
def test_a_client_that_is_not_open_says_so(how: str) -> None:
    clients = Producer("localhost:1"), Consumer("localhost:1"), Admin("localhost:1")
    with pytest.raises(NotOpen, match="use `async with"):
        asyncio.run(use(how, *clients))


def test_a_client_that_was_closed_says_so(cluster: str) -> None:
    async def work() -> None:
        async with Producer(cluster) as producer, Consumer(cluster) as consumer, Admin(cluster) as admin:
            pass
        for how in USES:
            with pytest.raises(NotOpen, match="was closed"):
                await use(how, producer, consumer, admin)
        with pytest.raises(NotOpen, match="make a new one"):
            await producer.__aenter__()

    asyncio.run(work())


def test_use_from_another_loop_is_an_error_and_not_a_hang(cluster: str) -> None:
    problems: dict[str, BaseException | None] = {}

    def elsewhere(*clients: Any) -> None:
        for how in USES:
            try:
                asyncio.run(use(how, *clients))
            except BaseException as problem:
                problems[how] = problem

    async def work() -> None:
        async with Producer(cluster) as producer, Consumer(cluster) as consumer, Admin(cluster) as admin:
            thread = threading.Thread(target=elsewhere, args=(producer, consumer, admin))
            thread.start()
            await asyncio.to_thread(thread.join, 60)

    asyncio.run(work())
    assert {how: type(problem) for how, problem in problems.items()} == dict.fromkeys(USES, WrongLoop)
    assert "barnabas.sync" in str(problems["send"])


def test_use_after_a_fork_is_an_error_and_the_parent_goes_on(cluster: str, topic_name: str) -> None:
    program = """
    import multiprocessing, warnings
    from barnabas.client.errors import WrongProcess
    warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, from Python 3.12 on

    def child(*clients):
        async def use():
            for call in (clients[0].send(topic, b""), clients[0].flush(), clients[1].poll()):
                try:
                    await asyncio.wait_for(call, 60)
                except WrongProcess as error:
                    print(error, flush=True)
        asyncio.run(use())

    async def main():
        async with Producer(address) as producer, Consumer(address, topics=[topic], group=topic) as consumer:
            await producer.send(topic, b"before")
            forked = multiprocessing.get_context("fork").Process(target=child, args=(producer, consumer))
            forked.start()
            await asyncio.to_thread(forked.join, 60)
            print(forked.exitcode)
            print((await producer.send(topic, b"after")).offset)
    """
    producer = "this Producer was made before a fork; make a new one in the child process\n"
    assert run(program, cluster, topic_name) == 2 * producer + producer.replace("Producer", "Consumer") + "0\n1\n"


def test_a_poll_that_is_cancelled_loses_nothing(cluster: str, topic_name: str) -> None:
    async def work() -> list[int]:
        found: list[int] = []
        async with (
            Producer(cluster, linger_ms=0) as producer,
            Consumer(cluster, topics=[topic_name], group=topic_name, auto_offset_reset="earliest") as consumer,
        ):
            for number in range(200):
                producer.post(topic_name, b"%d" % number)
                try:
                    async with asyncio.timeout(0.002):
                        found += [int(record.value) for record in await consumer.poll()]
                except TimeoutError:
                    pass
            async with asyncio.timeout(30):
                while len(found) < 200:
                    found += [int(record.value) for record in await consumer.poll()]
        return found

    assert asyncio.run(work()) == list(range(200))


def test_a_send_that_is_cancelled_may_still_deliver_and_harms_no_other(cluster: str, topic_name: str) -> None:
    async def work() -> tuple[int, list[bytes]]:
        async with Producer(cluster, linger_ms=50) as producer:
            await producer.send(topic_name, b"first")
            cancelled = asyncio.create_task(producer.send(topic_name, b"cancelled"))
            other = asyncio.create_task(producer.send(topic_name, b"other"))
            await asyncio.sleep(0.01)
            cancelled.cancel()
            offset = (await other).offset
            with pytest.raises(asyncio.CancelledError):
                await cancelled
        async with Consumer(cluster, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic_name, 0)])
            found: list[bytes] = []
            while len(found) <= offset:
                found += [record.value for record in await consumer.poll()]
        return offset, found

    offset, found = asyncio.run(asyncio.wait_for(work(), 30))
    assert found in ([b"first", b"cancelled", b"other"], [b"first", b"other"])
    assert found[offset] == b"other"


def test_leaving_a_client_leaves_no_task_behind(cluster: str, topic_name: str) -> None:
    async def work() -> list[str]:
        async with (
            asyncio.timeout(30),
            Producer(cluster, transactional_id=topic_name) as producer,
            Consumer(cluster, topics=[topic_name], group=topic_name) as consumer,
            Admin(cluster) as admin,
        ):
            async with producer.transaction():
                await producer.send(topic_name, b"first")
            await consumer.poll(timeout_ms=100)
            await admin.groups.list()
        return [repr(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    assert asyncio.run(work()) == []
    assert [thread.name for thread in threading.enumerate() if thread.name == "barnabas-groups"] == []


def test_metrics_are_plain_numbers_that_follow_the_work(cluster: str, topic_name: str) -> None:
    async def work() -> None:
        async with (
            asyncio.timeout(30),
            Producer(cluster) as producer,
            Consumer(cluster, auto_offset_reset="earliest") as consumer,
        ):
            for _ in range(3):
                await producer.send(topic_name, b"x" * 1000)
            sent = asdict(producer.metrics())
            assert (sent["records_sent"], sent["records_failed"], sent["buffered_bytes"]) == (3, 0, 0)
            assert 0 < sent["requests_sent"] <= 3
            consumer.assign([TopicPartition(topic_name, 0)])
            found = 0
            while found < 3:
                found += len(await consumer.poll())
            read = asdict(consumer.metrics())
            assert (read["assigned_partitions"], read["fetched_bytes"] > 3000) == (1, True)
            assert all(type(value) in (int, float) for value in (*sent.values(), *read.values()))

    asyncio.run(work())
