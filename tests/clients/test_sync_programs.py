"""Programs on the clients without async: Ctrl-C, the end, a fork, and threads that call from where they must not."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from barnabas import TopicPartition
from barnabas.sync import Admin, Consumer, Producer
from tests.clients.programs import interrupt_after, run

NO_LOOP_HERE = """
# instead of asyncio.run(main())
import os, threading, time
from barnabas.sync import Admin, Consumer, Producer
"""
ITERATING = """
with Producer(address) as producer:
    producer.send(topic, b"first")
with Consumer(address, topics=[topic], group=topic, auto_offset_reset="earliest") as consumer:
    for record in consumer:
        print("waiting", flush=True)
"""
POLLING = """
with Consumer(address, topics=[topic]) as consumer:
    print("waiting", flush=True)
    consumer.poll(60_000)
"""
WAITING_FOR_A_RECORD = """
with Producer(address, linger_ms=60_000) as producer:
    handle = producer.post(topic, b"late")
    print("waiting", flush=True)
    handle.result()
"""
LEFT_OPEN = """
producer = Producer(address, linger_ms=60_000).__enter__()
producer.post(topic, b"one")
consumer = Consumer(address, topics=[topic], group=topic).__enter__()
while not consumer.assignment():
    consumer.poll(100)
admin = Admin(address).__enter__()
print("left open")
"""
DROPPED = """
def post():
    producer = Producer(address, linger_ms=60_000).__enter__()
    producer.post(topic, b"one")
post()
print("left open")
"""
FORKED = """
from barnabas.client.errors import WrongProcess
with Producer(address) as producer:
    producer.send(topic, b"one")
    child = os.fork()
    if child == 0:
        for use in (lambda: producer.send(topic, b"two"), lambda: producer.post(topic, b"two"), producer.close):
            try:
                use()
            except WrongProcess as error:
                print(error, flush=True)
        with Producer(address) as own:
            print(own.send(topic, b"three").topic == topic, flush=True)
        own = None
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
FROM_THE_LOOP = """
def partitioner(topic, key, value, count):
    try:
        producer.flush()
    except RuntimeError as error:
        print(error)
    return 0
with Producer(address, partitioner=partitioner) as producer:
    producer.send(topic, b"one")
"""


ON_BARNABAS = pytest.mark.parametrize("cluster", ["barnabas"], indirect=True)
"""For what a program does to itself, whatever broker it talks to."""


@pytest.fixture
def topic(cluster: str, topic_name: str) -> str:
    with Admin(cluster) as admin:
        admin.topics.create(topic_name, partitions=1)
    return topic_name


def sizes(cluster: str, topic: str) -> int:
    with Consumer(cluster, topics=[topic]) as consumer:
        return sum(consumer.end_offsets().values())


@ON_BARNABAS
@pytest.mark.parametrize("program", [ITERATING, POLLING, WAITING_FOR_A_RECORD], ids=["iterating", "polling", "posted"])
def test_ctrl_c_ends_a_wait(cluster: str, topic: str, program: str) -> None:
    assert interrupt_after("waiting", NO_LOOP_HERE + program, cluster, topic, at_rest=True) == ""


@pytest.mark.parametrize("program", [LEFT_OPEN, DROPPED], ids=["kept", "dropped"])
def test_what_is_left_open_is_closed_at_exit_and_delivers(cluster: str, topic: str, program: str) -> None:
    assert run(NO_LOOP_HERE + program, cluster, topic) == "left open\n"
    assert sizes(cluster, topic) == 1


def test_a_member_that_is_left_open_leaves_its_group_at_exit(cluster: str, topic: str) -> None:
    """Otherwise the next one would wait for the end of its session."""
    run(NO_LOOP_HERE + LEFT_OPEN, cluster, topic)
    with Consumer(cluster, topics=[topic], group=topic) as consumer:
        deadline = time.monotonic() + 60
        while not consumer.assignment() and time.monotonic() < deadline:
            consumer.poll(100)
        assert consumer.assignment() == [TopicPartition(topic, 0)]


@ON_BARNABAS
def test_a_client_of_before_a_fork_is_an_error_and_a_new_one_works(cluster: str, topic: str) -> None:
    first, second, third, works = run(NO_LOOP_HERE + FORKED, cluster, topic).splitlines()
    assert first == second == third == "this client was made before a fork; make a new one in the child process"
    assert works == "True"


@ON_BARNABAS
def test_a_call_from_the_loop_is_an_error_and_no_hang(cluster: str, topic: str) -> None:
    assert "from its own event loop" in run(NO_LOOP_HERE + FROM_THE_LOOP, cluster, topic)


def test_an_interrupted_poll_loses_nothing(cluster: str, topic: str) -> None:
    def interrupted(timer: threading.Timer) -> None:
        timer.start()
        consumer.poll(60_000)

    with Producer(cluster) as producer, Consumer(cluster, topics=[topic], auto_offset_reset="earliest") as consumer:
        for number in range(5):
            timer = threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                interrupted(timer)
            timer.join()
            producer.send(topic, b"%d" % number)
            assert [record.value for record in consumer.poll(20_000)] == [b"%d" % number]


@ON_BARNABAS
def test_all_clients_share_one_thread(cluster: str, topic: str) -> None:
    with Producer(cluster), Producer(cluster), Consumer(cluster, topics=[topic]), Admin(cluster):
        assert [each.name for each in threading.enumerate()].count("barnabas-sync") == 1
