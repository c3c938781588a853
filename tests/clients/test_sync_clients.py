"""The clients without async: the same records, from one thread or from several."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest

from barnabas import BufferFull, KafkaError, NewRecord, TopicPartition
from barnabas.sync import Admin, Consumer, Producer
from barnabas.sync.portal import Portal

THREADS = 4
PER_THREAD = 500


@pytest.fixture
def topic(cluster: str, topic_name: str) -> str:
    with Admin(cluster) as admin:
        admin.topics.create(topic_name, partitions=2)
    return topic_name


def values(cluster: str, topic: str, count: int, **options: object) -> list[bytes]:
    with Consumer(cluster, topics=[topic], auto_offset_reset="earliest", **options) as consumer:  # type: ignore[arg-type]
        return [record.value for record in islice(consumer, count)]


def test_what_is_sent_in_every_way_is_read_in_every_way(cluster: str, topic: str) -> None:
    with Producer(cluster) as producer:
        assert producer.send(topic, b"0", partition=0).offset == 0
        assert producer.post(topic, b"1", partition=0).result(60).offset == 1
        landed = producer.send_many(topic, [NewRecord(b"2", partition=0), NewRecord(b"3", partition=0)])
        assert [each.offset for each in landed] == [2, 3]
        assert producer.partition_count(topic) == 2
        assert producer.metrics().records_sent == 4
    expected = [b"0", b"1", b"2", b"3"]
    assert values(cluster, topic, 4) == expected
    with Consumer(cluster, topics=[topic], auto_offset_reset="earliest") as consumer:
        polled = consumer.poll(20_000)
        while len(polled) < 4:
            polled += consumer.poll(20_000)
        assert [record.value for record in polled] == expected
        consumer.seek_to_beginning()
        assert [record.value for record in next(consumer.batches())][:1] == expected[:1]
        assert consumer.end_offsets()[TopicPartition(topic, 0)] == 4


def test_a_group_goes_on_where_it_has_committed(cluster: str, topic: str) -> None:
    with Producer(cluster) as producer:
        producer.send_many(topic, [NewRecord(b"%d" % number, partition=0) for number in range(10)])
    options = {"topics": [topic], "group": topic, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with Consumer(cluster, **options) as consumer:  # type: ignore[arg-type]
        for record in consumer:
            if record.value == b"4":
                consumer.commit()
                break
    with Consumer(cluster, **options) as consumer:  # type: ignore[arg-type]
        assert next(iter(consumer)).value == b"5"


def test_threads_share_a_producer_and_a_consumer(cluster: str, topic: str) -> None:
    """Every record is delivered once, and read by one thread."""
    read: list[bytes] = []
    with ThreadPoolExecutor(THREADS) as threads, Producer(cluster) as producer:

        def post(thread: int) -> None:
            handles = [producer.post(topic, b"%d.%d" % (thread, number)) for number in range(PER_THREAD)]
            assert len({(each.result(60).partition, each.result(60).offset) for each in handles}) == PER_THREAD

        list(threads.map(post, range(THREADS)))
    with (
        Consumer(cluster, topics=[topic], auto_offset_reset="earliest", max_poll_records=50) as consumer,
        ThreadPoolExecutor(THREADS) as threads,
    ):

        def take(_: int) -> None:
            while len(read) < THREADS * PER_THREAD:
                read.extend(record.value for record in consumer.poll(200))

        list(threads.map(take, range(THREADS)))
    assert sorted(read) == sorted(b"%d.%d" % (thread, n) for thread in range(THREADS) for n in range(PER_THREAD))


def test_threads_that_iterate_over_one_consumer_get_each_record_once(cluster: str, topic: str) -> None:
    count = THREADS * PER_THREAD
    with Producer(cluster) as producer:
        producer.send_many(topic, [b"%d" % number for number in range(count)])
        read: list[bytes] = []
        with Consumer(cluster, topics=[topic], auto_offset_reset="earliest") as consumer:

            def take() -> None:
                for record in consumer:
                    if record.value == b"end":
                        return
                    read.append(record.value)

            threads = [threading.Thread(target=take) for _ in range(THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    producer.send(topic, b"end")
                    thread.join(0.1)
    assert sorted(map(int, read)) == list(range(count))


def test_iterating_asks_the_loop_once_for_many_records(
    cluster: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Producer(cluster) as producer:
        producer.send_many(topic, [NewRecord(b"%d" % number, partition=0) for number in range(2000)])
    asked = 0
    plain = Portal.run

    def counting(self: Portal, *arguments: object) -> object:
        nonlocal asked
        asked += 1
        return plain(self, *arguments)  # type: ignore[arg-type]

    with Consumer(cluster, topics=[topic], auto_offset_reset="earliest") as consumer:
        monkeypatch.setattr(Portal, "run", counting)
        assert [record.value for record in islice(consumer, 2000)] == [b"%d" % number for number in range(2000)]
    assert asked < 200


def test_leaving_the_loop_early_loses_nothing(cluster: str, topic: str) -> None:
    with Producer(cluster) as producer:
        producer.send_many(topic, [NewRecord(b"%d" % number, partition=0) for number in range(100)])
    with Consumer(cluster, topics=[topic], auto_offset_reset="earliest") as consumer:
        first = [record.value for record in islice(consumer, 7)]
        rest = [record.value for record in islice(consumer, 93)]
    assert first + rest == [b"%d" % number for number in range(100)]


def test_callbacks_run_in_the_thread_that_reads_and_may_use_the_consumer(cluster: str, topic: str) -> None:
    called: list[tuple[str, str]] = []

    def note(what: str) -> Callable[[list[TopicPartition]], None]:
        def callback(partitions: list[TopicPartition]) -> None:
            called.append((what, threading.current_thread().name))
            if what == "assigned":
                consumer.seek(TopicPartition(topic, 0), 3)

        return callback

    with Producer(cluster) as producer:
        producer.send_many(topic, [NewRecord(b"%d" % number, partition=0) for number in range(5)])
    consumer = Consumer(cluster, topics=[topic], group=topic, on_assigned=note("assigned"), on_revoked=note("revoked"))
    with consumer:
        assert next(iter(consumer)).value == b"3"
    name = threading.current_thread().name
    assert called == [("assigned", name), ("revoked", name)]


def test_an_error_in_a_callback_is_raised_by_the_call_that_ran_it(cluster: str, topic: str) -> None:
    def refuse(_: object) -> None:
        raise LookupError("no place for these")

    with (
        Consumer(cluster, topics=[topic], group=topic, on_assigned=refuse) as consumer,
        pytest.raises(LookupError, match="no place"),
    ):
        next(iter(consumer))


def test_a_transaction_has_the_posts_of_its_block_and_the_offsets_of_a_consumer(cluster: str, topic: str) -> None:
    with Producer(cluster) as producer:
        producer.send(topic, b"input", partition=0)
    options = {"topics": [topic], "group": topic, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with (
        Producer(cluster, transactional_id=topic) as producer,
        Consumer(cluster, **options) as consumer,  # type: ignore[arg-type]
    ):
        assert next(iter(consumer)).value == b"input"

        def change_my_mind() -> None:
            with producer.transaction():
                producer.post(topic, b"aborted", partition=1)
                raise LookupError("changed my mind")

        with pytest.raises(LookupError, match="changed my mind"):
            change_my_mind()
        with producer.transaction() as transaction:
            producer.post(topic, b"output", partition=1)
            transaction.send_offsets(consumer)
        committed = consumer.committed(TopicPartition(topic, 0))[TopicPartition(topic, 0)]
        assert committed is not None
        assert committed.offset == 1
    assert sorted(values(cluster, topic, 2, isolation_level="read_committed")) == [b"input", b"output"]


def test_a_refused_post_is_told_by_its_handle_or_by_the_flush(cluster: str, topic: str) -> None:
    large = b"x" * 2000
    with Producer(cluster, max_request_size=1000) as producer:
        with pytest.raises(KafkaError, match="max_request_size"):
            producer.post(topic, large).result(60)
        producer.flush()
        producer.post(topic, large)
        producer.post(topic, b"fine", partition=0)
        with pytest.raises(KafkaError, match="max_request_size"):
            producer.flush()
        producer.post(topic, large)
        with pytest.raises(KafkaError, match="max_request_size"):
            producer.close()
    assert values(cluster, topic, 1) == [b"fine"]


def test_a_refused_post_aborts_its_transaction(cluster: str, topic: str) -> None:
    with Producer(cluster, transactional_id=topic, max_request_size=1000) as producer:

        def post_too_much() -> None:
            with producer.transaction():
                producer.post(topic, b"not alone")
                producer.post(topic, b"x" * 2000)

        with pytest.raises(KafkaError, match="max_request_size"):
            post_too_much()
        with producer.transaction():
            producer.send(topic, b"after")
    assert values(cluster, topic, 1, isolation_level="read_committed") == [b"after"]


def test_a_post_waits_for_room(cluster: str, topic: str) -> None:
    with Producer(cluster, buffer_memory=65_536, linger_ms=0) as producer:
        handles = [producer.post(topic, b"%6d" % number * 100, partition=0) for number in range(3000)]
        assert [handle.result(60).offset for handle in handles] == list(range(3000))


def test_a_post_that_finds_no_room_in_time_is_refused(cluster: str, topic: str) -> None:
    """Nothing is dropped silently: the post raises, or the flush at the end does."""

    def post_too_much() -> None:
        with Producer(cluster, buffer_memory=20_000, max_block_ms=1) as producer:
            for _ in range(3000):
                producer.post(topic, b"x" * 10_000)

    with pytest.raises(BufferFull):
        post_too_much()


def test_a_closed_consumer_ends_the_wait_of_another_thread(cluster: str, topic: str) -> None:
    problems: list[BaseException] = []

    def read() -> None:
        try:
            next(iter(consumer))
        except BaseException as error:
            problems.append(error)

    with Consumer(cluster, topics=[topic]) as consumer:
        thread = threading.Thread(target=read)
        thread.start()
        time.sleep(0.1)
    thread.join(60)
    assert not thread.is_alive()
    assert [str(problem) for problem in problems] == ["this Consumer was closed"]
    with pytest.raises(RuntimeError, match="this Consumer was closed"):
        consumer.poll(0)
    consumer.close()
