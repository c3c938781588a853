"""Exactly-once writes through every crash that the two phases have to bear; some on Apache Kafka too.

Sink and tasks are called as Spark calls them, in this process, so that a driver can die between any two steps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from barnabas import KafkaError, ProducerFenced
from barnabas.client.admin.transactions import Transactions, TransactionState
from barnabas.spark import decisions, two_phases
from barnabas.spark.decisions import Decision, Decisions
from barnabas.sync import Admin
from tests.peers import BarnabasServer, Broker, free_port
from tests.spark.written_topics import QUERY, Driver, committed, rows, task


class Died(BaseException):
    """The driver is gone: nothing of it runs any more."""


@pytest.fixture
def address(request: pytest.FixtureRequest) -> str:
    """The address of a broker: ours, unless the test is for both."""
    server: Broker = request.getfixturevalue(getattr(request, "param", "spark_broker"))
    return server.address


on_both = pytest.mark.parametrize("address", ["spark_broker", "apache_kafka"], ids=["barnabas", "kafka"], indirect=True)


@pytest.fixture
def topic(address: str, topic_name: str) -> str:
    with Admin(address) as admin:
        admin.topics.create(topic_name, partitions=2)
    return topic_name


@pytest.fixture
def driver(address: str, topic: str) -> Driver:
    return Driver(address, topic)


def dies(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, instead: Callable[..., Any] | None = None) -> None:
    """The next call of a method is the driver's last; it may do something else before. The call after it is as ever."""
    real = getattr(owner, name)

    async def last(self: Any, *args: Any, **options: Any) -> None:
        monkeypatch.setattr(owner, name, real)
        if instead is not None:
            await instead(real, self, *args, **options)
        raise Died

    monkeypatch.setattr(owner, name, last)


async def does_it_first(real: Callable[..., Any], self: Any, *args: Any, **options: Any) -> None:
    await real(self, *args, **options)


async def does_half_of_it(real: Callable[..., Any], self: Any, transactions: Any, **options: Any) -> None:
    await real(self, transactions[: len(transactions) // 2], **options)


def open_ids(address: str, topic: str) -> list[str]:
    with Admin(address) as admin:
        found = admin.transactions.list(states=[TransactionState.ONGOING])
    return [each.transactional_id for each in found if each.transactional_id.startswith(f"of-{topic}")]


def test_nothing_is_visible_before_the_commit_and_everything_after(address: str, topic: str, driver: Driver) -> None:
    messages = driver.tasks(0, ["a", "b"], [], ["c"])
    assert [message.rows for message in messages] == [2, 0, 1]
    assert committed(address, topic, 0) == []
    driver.commit(0, messages)
    assert committed(address, topic, 3) == [b"a", b"b", b"c"]
    driver.run(1, ["d"])
    assert committed(address, topic, 4) == [b"a", b"b", b"c", b"d"]


def test_tasks_without_rows_open_no_transaction(address: str, topic: str, driver: Driver) -> None:
    [message] = driver.tasks(0, [])
    assert message.transaction is None
    assert open_ids(address, topic) == []
    driver.commit(0, [message])
    driver.commit(1, [])
    driver.run(2, ["a"])
    assert committed(address, topic, 1) == [b"a"]


@pytest.mark.parametrize(
    ("owner", "name", "instead"),
    [
        pytest.param(two_phases, "_check_open", None, id="before it looked"),
        pytest.param(Decisions, "write", None, id="before the decision"),
    ],
)
def test_a_driver_that_dies_before_the_decision_has_written_nothing(
    address: str, topic: str, driver: Driver, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, instead: Any
) -> None:
    driver.run(0, ["z"])
    messages = driver.tasks(1, ["a", "b"], ["c"], ["d"])
    dies(monkeypatch, owner, name, instead)
    with pytest.raises(Died):
        driver.commit(1, messages)
    driver.run(1, ["d", "c"], ["b", "a"])  # cut in another way
    assert committed(address, topic, 5) == [b"a", b"b", b"c", b"d", b"z"]
    assert open_ids(address, topic) == []


@pytest.mark.parametrize(
    ("owner", "name", "instead"),
    [
        pytest.param(Decisions, "write", does_it_first, id="right after the decision"),
        pytest.param(Transactions, "end_many", None, id="before the first end"),
        pytest.param(Transactions, "end_many", does_half_of_it, id="after half of the ends"),
        pytest.param(Transactions, "end_many", does_it_first, id="after the last end"),
        pytest.param(two_phases, "_abort_strays", None, id="before the strays"),
        pytest.param(two_phases, "_abort_strays", does_it_first, id="after everything"),
    ],
)
def test_what_is_decided_is_finished_by_the_next_driver_and_not_written_again(
    address: str, topic: str, driver: Driver, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, instead: Any
) -> None:
    driver.run(0, ["z"])
    messages = driver.tasks(1, ["a", "b"], ["c"], ["d"])
    dies(monkeypatch, owner, name, instead)
    with pytest.raises(Died):
        driver.commit(1, messages)
    again = driver.tasks(1, ["d", "c"], ["b", "a"])
    assert [message.rows for message in again] == [0, 0]
    assert committed(address, topic, 5) == [b"a", b"b", b"c", b"d", b"z"]
    driver.commit(1, again)
    driver.run(2, ["e"], ["f"])
    assert committed(address, topic, 7) == [b"a", b"b", b"c", b"d", b"e", b"f", b"z"]
    assert open_ids(address, topic) == []


def test_a_failure_in_the_middle_of_a_commit_leads_to_an_abort_that_aborts_nothing_decided(
    address: str, topic: str, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = driver.tasks(0, ["a"], ["b"])
    dies(monkeypatch, Transactions, "end_many", does_half_of_it)
    with pytest.raises(Died):
        driver.commit(0, messages)
    driver.stream_writer().abort(messages, 0)  # that is what Spark does then
    assert committed(address, topic, 2) == [b"a", b"b"]


def test_a_batch_that_fails_is_aborted(address: str, topic: str, driver: Driver) -> None:
    messages = driver.tasks(0, ["a"], ["b"])
    driver.stream_writer().abort([messages[0], None], 0)
    assert open_ids(address, topic) == []
    driver.run(0, ["a"], ["b"])
    assert committed(address, topic, 2) == [b"a", b"b"]


@on_both
def test_of_two_attempts_at_a_task_only_the_one_that_spark_chose_counts(
    address: str, topic: str, driver: Driver
) -> None:
    writer = driver.stream_writer()
    with task(attempt=0):
        slow = writer.write(rows("a", "b"))
    with task(attempt=1):
        speculative = writer.write(rows("b", "a"))
    with task(attempt=2):
        late = writer.write(rows("a", "b"))
    driver.commit(0, [speculative])
    assert committed(address, topic, 2) == [b"a", b"b"]
    assert open_ids(address, topic) == []
    assert len({message.transaction.transactional_id for message in (slow, speculative, late)}) == 3
    with task(attempt=3):
        writer.write(rows("a", "b"))  # it ends when the batch is long done
    driver.run(1, ["c"])
    assert committed(address, topic, 3) == [b"a", b"b", b"c"]
    assert open_ids(address, topic) == []


def test_an_attempt_of_a_repeated_stage_leaves_the_first_ones_transaction_alone(
    address: str, topic: str, driver: Driver
) -> None:
    writer = driver.stream_writer()
    with task():
        first = writer.write(rows("a"))
        again = writer.write(rows("a"))  # Spark counts attempts anew
    assert first.transaction != again.transaction
    driver.commit(0, [first])
    assert committed(address, topic, 1) == [b"a"]
    assert open_ids(address, topic) == []


def test_a_task_that_fails_leaves_nothing_open_and_is_tried_again(address: str, topic: str, driver: Driver) -> None:
    def fails() -> Iterator[Any]:
        yield from rows("a", "b")
        raise ZeroDivisionError

    writer = driver.stream_writer()
    with task(), pytest.raises(ZeroDivisionError):
        writer.write(fails())
    assert open_ids(address, topic) == []
    with task(attempt=1):
        message = writer.write(rows("a", "b", "c"))
    driver.commit(0, [message])
    assert committed(address, topic, 3) == [b"a", b"b", b"c"]


def test_a_partition_that_the_topic_does_not_have_is_named_and_nothing_left_open(
    address: str, topic: str, driver: Driver
) -> None:
    lost = pyarrow.RecordBatch.from_pydict({"value": ["a"], "partition": pyarrow.array([7], pyarrow.int32())})
    with task(), pytest.raises(ValueError, match="is for partition 7; there are 2, counted from 0"):
        driver.stream_writer().write(iter([*rows("a"), lost]))
    assert open_ids(address, topic) == []


@on_both
def test_a_transaction_that_ended_before_its_commit_keeps_the_whole_batch_back(
    address: str, topic: str, driver: Driver
) -> None:
    messages = driver.tasks(7, ["a"], ["b"])
    assert messages[1].transaction is not None
    with Admin(address) as admin:
        admin.transactions.fence(messages[1].transaction.transactional_id)  # as a time-out does
    with pytest.raises(two_phases.NotOpen, match=f"batch 7 of query {QUERY} is not committed.*of-{topic}-1-0-0-1"):
        driver.commit(7, messages)
    driver.stream_writer().abort(messages, 7)
    driver.run(7, ["b", "a"])
    assert committed(address, topic, 2) == [b"a", b"b"]


@on_both
def test_a_decided_transaction_that_timed_out_stops_the_query_and_names_the_batch(
    address: str, topic: str, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = driver.tasks(7, ["a"], ["b"])
    dies(monkeypatch, Transactions, "end_many")
    with pytest.raises(Died):
        driver.commit(7, messages)
    assert messages[1].transaction is not None
    with Admin(address) as admin:
        admin.transactions.fence(messages[1].transaction.transactional_id)
    for _ in range(2):
        with pytest.raises(two_phases.DecidedLost, match=f"batch 7 of query {QUERY} was decided.*of-{topic}-1-0-0-1"):
            driver.stream_writer()


@on_both
def test_a_driver_that_was_thought_dead_can_decide_nothing_more(
    address: str, topic: str, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = driver.tasks(0, ["a"], ["b"])
    real = Decisions.write

    async def sleeps_first(self: Decisions, decision: Decision) -> None:
        monkeypatch.setattr(Decisions, "write", real)
        await two_phases.recover(driver.write_options())
        await real(self, decision)

    monkeypatch.setattr(Decisions, "write", sleeps_first)
    with pytest.raises(ProducerFenced):
        driver.commit(0, messages)
    assert committed(address, topic, 0) == []
    driver.run(0, ["b"], ["a"])
    assert committed(address, topic, 2) == [b"a", b"b"]


def test_ids_stay_few_however_many_batches_there_are(address: str, topic: str, driver: Driver) -> None:
    ids = [
        message.transaction.transactional_id
        for batch in range(4)
        for message in driver.run(batch, ["a"], ["b"])
        if message.transaction is not None
    ]
    assert ids == [f"of-{topic}-{partition}-0-0-{batch % 2}" for batch in range(4) for partition in range(2)]


def test_another_query_with_the_same_prefix_counts_its_own_batches(address: str, topic: str, driver: Driver) -> None:
    driver.run(0, ["a"])
    driver.run(0, ["b"], query="another")
    assert committed(address, topic, 2) == [b"a", b"b"]


def test_a_batch_write_is_atomic_and_finished_by_the_next_one(
    address: str, topic: str, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(writer: Any, *parts: str) -> list[Any]:
        messages = []
        for partition, value in enumerate(parts):
            with task(partition):
                messages.append(writer.write(rows(value)))
        return messages

    writer = driver.batch_writer()
    messages = write(writer, "a", "b")
    assert committed(address, topic, 0) == []
    dies(monkeypatch, Transactions, "end_many", does_half_of_it)
    with pytest.raises(Died):
        writer.commit(messages)
    other = driver.batch_writer()
    other.commit(write(other, "c"))
    assert committed(address, topic, 3) == [b"a", b"b", b"c"]
    driver.batch_writer().abort([])


def test_a_write_with_an_id_is_done_once_whatever_was_written_since(address: str, topic: str) -> None:
    for day in ("monday", "tuesday", "monday", "tuesday", "monday"):
        writer = Driver(address, topic, writeId=day).batch_writer()
        with task():
            message = writer.write(rows(day))
        writer.commit([message])
    assert committed(address, topic, 2) == [b"monday", b"tuesday"]


def test_a_prefix_that_is_a_part_of_another_ones_does_not_abort_its_transactions(address: str, topic: str) -> None:
    longer = Driver(address, topic, transactionalIdPrefix=f"of-{topic}-1")
    messages = longer.tasks(0, ["a"])
    Driver(address, topic).run(0, ["b"])
    longer.commit(0, messages)
    assert committed(address, topic, 2) == [b"a", b"b"]


def test_a_cluster_that_does_not_take_the_time_out_says_so(address: str, topic: str) -> None:
    patient = Driver(address, topic, **{"kafka.transaction.timeout.ms": "99000000"})
    with pytest.raises(KafkaError, match=r"transaction\.max\.timeout\.ms"):
        patient.tasks(0, ["a"])


def test_a_control_topic_that_forgets_is_refused(address: str, topic: str) -> None:
    with pytest.raises(KafkaError, match=f"topic '{topic}' has cleanup.policy=delete, and would forget decisions"):
        Driver(address, topic, controlTopic=topic).stream_writer()


def test_decisions_are_found_however_far_back_they_are(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "_FIRST_LOOK", 2)
    quiet = Driver(address, topic, transactionalIdPrefix=f"quiet-{topic}", controlTopic=f"{topic}-control")
    busy = Driver(address, topic, transactionalIdPrefix=f"busy-{topic}", controlTopic=f"{topic}-control")
    quiet.run(0, ["a"])
    for batch in range(5):
        busy.run(batch, ["b"])
    quiet.run(0, ["a"])
    assert committed(address, topic, 6) == [b"a"] + [b"b"] * 5


def test_a_broker_that_is_killed_and_comes_back_is_waited_for(tmp_path: Path, topic_name: str) -> None:
    port = free_port()
    servers = [BarnabasServer(tmp_path / "data", port=port)]

    @contextmanager
    def killed() -> Iterator[None]:
        """While the block begins its work there is no broker."""
        servers[-1].kill()
        back = threading.Timer(0.5, lambda: servers.append(BarnabasServer(tmp_path / "data", port=port)))
        back.start()
        yield
        back.join()

    try:
        driver = Driver(servers[0].address, topic_name)
        driver.run(0, ["a"])
        with killed():
            messages = driver.tasks(1, ["b"], ["c"])
        with killed():
            driver.commit(1, messages)
        assert committed(servers[-1].address, topic_name, 3) == [b"a", b"b", b"c"]
    finally:
        for server in servers:
            server.stop()


def test_a_topic_that_nobody_makes_is_told_before_the_tasks_begin(
    tmp_path: Path, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.spark.writer._FIND_MS", 200)
    settings = {"auto.create.topics.enable": "false"}
    with BarnabasServer(tmp_path / "data", settings) as server, pytest.raises(KafkaError, match=topic_name):
        Driver(server.address, topic_name).batch_writer()
