"""How batches leave, come back and are given up: order, time-outs, and what brokers may answer."""

from __future__ import annotations

import asyncio
from collections import deque
from math import inf
from typing import Any

import pytest

from barnabas.client.client import Client
from barnabas.client.errors import BufferFull, DeliveryTimeout, DeliveryUnknown, NotDelivered
from barnabas.client.producer import Producer
from barnabas.core.errors import ErrorCode, KafkaError
from tests.unit.client.scripted_cluster import REQUEST_TIMEOUT_S, TOPIC, AnswerLost, ScriptedCluster, broken, run


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def produced(cluster: ScriptedCluster, values: list[bytes], **options: Any) -> list[int]:
    """Post the values, each into a batch of its own unless `batch_size` says otherwise; their offsets."""

    async def work(client: Client) -> list[int]:
        async with Producer(client, **{"batch_size": 1, "linger_ms": 0, **options}) as producer:
            deliveries = [producer.post(TOPIC, value, partition=0) for value in values]
            return [(await delivery).offset for delivery in deliveries]

    return run(cluster, work)


def test_five_requests_are_in_flight_once_the_first_has_got_through() -> None:
    cluster = ScriptedCluster()
    assert produced(cluster, numbers(20)) == list(range(20))
    assert cluster.most_in_flight == 5
    assert cluster.sent[1].at > cluster.sent[0].at
    assert cluster.sent[1].at == cluster.sent[5].at


@pytest.mark.parametrize("fault", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER, broken()])
@pytest.mark.parametrize("position", [0, 2])
def test_order_holds_when_a_batch_in_the_middle_has_to_be_repeated(fault: Any, position: int) -> None:
    cluster = ScriptedCluster(faults=deque([*[None] * position, fault]))
    assert produced(cluster, numbers(12)) == list(range(12))
    assert cluster.logs[0] == numbers(12)
    assert {sent.producer_epoch for sent in cluster.sent} == {0}


def test_a_batch_whose_answer_is_lost_again_and_again_is_appended_once() -> None:
    """A leader knows the last five batches again, so none may be appended that makes it forget an unsettled one."""
    lost = AnswerLost()
    cluster = ScriptedCluster(faults=deque([None, lost, None, None, None, None, lost, lost]))
    assert produced(cluster, numbers(20)) == list(range(20))
    assert cluster.logs[0] == numbers(20)


def outcomes(cluster: ScriptedCluster, values: list[bytes]) -> list[int | KafkaError]:
    """Of values that are each in a batch of its own: the offset, or what it failed with."""

    async def work(client: Client) -> list[int | KafkaError]:
        async with Producer(client, batch_size=1, linger_ms=0) as producer:
            found: list[int | KafkaError] = []
            for delivery in [producer.post(TOPIC, value, partition=0) for value in values]:
                try:
                    found.append((await delivery).offset)
                except KafkaError as error:
                    found.append(error)
            return found

    return run(cluster, work)


def test_what_a_leader_may_have_without_knowing_it_again_is_not_sent_under_other_numbers() -> None:
    cluster = ScriptedCluster(faults=deque([None, *[AnswerLost()] * 5]), remembered_batches=1)
    found = outcomes(cluster, numbers(12))
    assert [type(each) for each in found[1:5]] == [DeliveryUnknown] * 4
    assert "1 record for orders-0 was not acknowledged: cannot append to orders-0: out of order" in str(found[1])
    assert [found[0], *found[5:]] == [0, *range(5, 12)]
    assert cluster.logs[0] == numbers(12)
    assert {sent.producer_epoch for sent in cluster.sent} == {0}


@pytest.mark.parametrize("fault", [broken(), ErrorCode.NOT_ENOUGH_REPLICAS])
def test_what_surely_was_not_appended_goes_on_under_the_next_epoch(fault: Any) -> None:
    behind_the_gap = [None] * 4
    cluster = ScriptedCluster(faults=deque([None, ErrorCode.INVALID_RECORD, *behind_the_gap, fault]))
    found = outcomes(cluster, numbers(12))
    assert isinstance(found[1], KafkaError)
    assert [found[0], *found[2:]] == list(range(11))
    assert cluster.logs[0] == [b"0", *numbers(12)[2:]]


@pytest.mark.parametrize("fault", [AnswerLost(), ErrorCode.REQUEST_TIMED_OUT])
def test_behind_a_gap_only_what_may_have_been_appended_fails(fault: Any) -> None:
    behind_the_gap = [None] * 4
    cluster = ScriptedCluster(faults=deque([None, ErrorCode.INVALID_RECORD, *behind_the_gap, fault]))
    found = outcomes(cluster, numbers(12))
    assert isinstance(found[2], DeliveryUnknown)
    assert [found[0], *found[3:]] == list(range(10))
    assert cluster.logs[0] == [b"0", *numbers(12)[3:]]


def test_a_batch_that_is_refused_for_good_fails_alone_and_the_next_epoch_closes_the_gap() -> None:
    cluster = ScriptedCluster(faults=deque([None, ErrorCode.INVALID_RECORD]))

    async def work(client: Client) -> None:
        async with Producer(client, batch_size=1, linger_ms=0) as producer:
            deliveries = [producer.post(TOPIC, value) for value in numbers(8)]
            with pytest.raises(KafkaError) as caught:
                await deliveries[1]
            assert caught.value.code is ErrorCode.INVALID_RECORD
            assert [(await delivery).offset for delivery in deliveries[2:]] == list(range(1, 7))

    run(cluster, work)
    assert cluster.logs[0] == [b"0", *numbers(8)[2:]]
    assert (cluster.sent[-1].producer_epoch, cluster.sent[-1].base_sequence) == (1, 5)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_leader_that_has_forgotten_the_producer_gets_a_new_epoch(code: ErrorCode) -> None:
    cluster = ScriptedCluster(faults=deque([code]))
    assert produced(cluster, numbers(3)) == [0, 1, 2]
    assert [(sent.producer_epoch, sent.base_sequence) for sent in cluster.sent] == [(0, 0), (1, 0), (1, 1), (1, 2)]


def test_a_duplicate_is_a_success_whose_offset_nobody_knows() -> None:
    cluster = ScriptedCluster(faults=deque([ErrorCode.DUPLICATE_SEQUENCE_NUMBER]))
    assert produced(cluster, numbers(1)) == [-1]


@pytest.mark.parametrize("acks", ["all", 0])
def test_a_failure_that_nobody_foresaw_leaves_nobody_waiting(acks: str | int) -> None:
    cluster = ScriptedCluster(faults=deque([RuntimeError("a bug")]))

    async def work(client: Client) -> None:
        async with Producer(client, acks=acks) as producer:
            with pytest.raises(KafkaError, match="a bug") as caught:
                await asyncio.wait_for(producer.send(TOPIC, b"x"), 10)
            assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
            await producer.send(TOPIC, b"y")

    run(cluster, work)


def test_without_idempotence_nothing_is_numbered_and_out_of_order_is_final() -> None:
    cluster = ScriptedCluster(faults=deque([ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]))

    async def work(client: Client) -> None:
        async with Producer(client, enable_idempotence=False) as producer:
            with pytest.raises(KafkaError):
                await producer.send(TOPIC, b"x")
            await producer.send(TOPIC, b"y")

    run(cluster, work)
    assert [(sent.producer_epoch, sent.base_sequence) for sent in cluster.sent] == [(-1, -1)] * 2


def test_acks_0_asks_for_no_answer() -> None:
    cluster = ScriptedCluster()
    assert produced(cluster, numbers(3), acks=0) == [-1, -1, -1]
    assert cluster.logs[0] == numbers(3)


def test_records_fail_in_time_when_the_broker_never_answers_and_those_behind_go_on() -> None:
    cluster = ScriptedCluster(faults=deque([inf]))

    async def work(client: Client) -> float:
        async with Producer(client, delivery_timeout_ms=3000) as producer:
            with pytest.raises(DeliveryTimeout, match="1 record for orders-0 was not acknowledged within"):
                await producer.send(TOPIC, b"lost")
            failed = client.clock.monotonic()
            await asyncio.sleep(REQUEST_TIMEOUT_S)
            assert (await producer.send(TOPIC, b"behind")).offset == 0
            return failed

    assert run(cluster, work) == pytest.approx(3, abs=0.1)


def test_records_fail_in_time_when_every_attempt_does_and_the_last_reason_is_told() -> None:
    cluster = ScriptedCluster(faults=deque([ErrorCode.NOT_ENOUGH_REPLICAS] * 1000))

    async def work(client: Client) -> None:
        async with Producer(client, delivery_timeout_ms=3000) as producer:
            with pytest.raises(DeliveryTimeout, match="cannot append to orders-0: not enough replicas"):
                await producer.send(TOPIC, b"lost")
            cluster.faults.clear()
            assert (await producer.send(TOPIC, b"found")).offset == 0

    run(cluster, work)
    assert len(cluster.sent) < 20  # the pauses grow


def test_a_topic_of_which_nothing_is_learned_fails_after_max_block_ms() -> None:
    cluster = ScriptedCluster(metadata_errors=deque([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 1000))

    async def work(client: Client) -> float:
        producer = Producer(client, max_block_ms=2000)
        await producer.__aenter__()
        handle = producer.post(TOPIC, b"x")
        with pytest.raises(NotDelivered, match="nothing was learned of topic 'orders' within max_block_ms=2000: topic"):
            await producer.__aexit__(None, None, None)
        assert handle.is_done
        return client.clock.monotonic()

    assert run(cluster, work) == pytest.approx(2, abs=0.1)
    assert cluster.sent == []


def test_records_wait_while_a_topic_is_being_created_and_keep_their_order() -> None:
    cluster = ScriptedCluster(
        metadata_errors=deque([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE]), leaders={0: -1}
    )

    async def work(client: Client) -> list[int]:
        async with Producer(client) as producer:
            deliveries = [producer.post(TOPIC, value) for value in numbers(5)]
            await asyncio.sleep(0.5)
            assert cluster.sent == []
            cluster.leaders.clear()
            return [(await delivery).offset for delivery in deliveries]

    assert run(cluster, work) == list(range(5))


def test_a_topic_that_is_forbidden_fails_at_once() -> None:
    cluster = ScriptedCluster(metadata_errors=deque([ErrorCode.TOPIC_AUTHORIZATION_FAILED]))

    async def work(client: Client) -> float:
        async with Producer(client) as producer:
            with pytest.raises(KafkaError) as caught:
                await producer.send(TOPIC, b"x")
            assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return client.clock.monotonic()

    assert run(cluster, work) < 1


def test_an_identity_is_asked_for_until_it_is_given() -> None:
    cluster = ScriptedCluster(identity_errors=deque([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3))
    assert produced(cluster, numbers(2)) == [0, 1]


def test_a_producer_that_may_not_have_an_identity_fails_its_records() -> None:
    cluster = ScriptedCluster(identity_errors=deque([ErrorCode.CLUSTER_AUTHORIZATION_FAILED]))

    async def work(client: Client) -> None:
        async with Producer(client) as producer:
            with pytest.raises(KafkaError, match="cannot get a producer id"):
                await producer.send(TOPIC, b"x")

    run(cluster, work)


def test_an_open_batch_lingers_and_a_full_one_leaves() -> None:
    cluster = ScriptedCluster()

    async def work(client: Client) -> tuple[float, float]:
        async with Producer(client, batch_size=300, linger_ms=2000) as producer:
            await producer.send(TOPIC, b"x")
            lingered = client.clock.monotonic()
            full = producer.post(TOPIC, b"x" * 200)
            producer.post(TOPIC, b"x" * 200)
            await full
            return lingered, client.clock.monotonic() - lingered

    lingered, left = run(cluster, work)
    assert lingered == pytest.approx(2, abs=0.1)
    assert left < 0.1


def test_batches_leave_early_when_somebody_waits_for_room() -> None:
    cluster = ScriptedCluster(partitions=2)

    async def work(client: Client) -> float:
        async with Producer(client, batch_size=300, buffer_memory=600, linger_ms=60_000) as producer:
            await producer.partition_count(TOPIC)
            for partition in (0, 1):
                producer.post(TOPIC, b"x" * 200, partition=partition)
            with pytest.raises(BufferFull, match=r"await producer\.room"):
                producer.post(TOPIC, b"x" * 200, partition=0)
            await producer.room()
            producer.post(TOPIC, b"x" * 200, partition=0)
            return client.clock.monotonic()

    assert run(cluster, work) < 1


def test_room_that_never_comes_is_told_after_max_block_ms() -> None:
    cluster = ScriptedCluster(faults=deque([inf]))

    async def work(client: Client) -> None:
        options = {"batch_size": 300, "buffer_memory": 300, "max_block_ms": 1000, "delivery_timeout_ms": 5000}
        async with Producer(client, **options) as producer:  # type: ignore[arg-type]
            first = producer.post(TOPIC, b"x" * 200)
            with pytest.raises(BufferFull, match="within max_block_ms=1000"):
                await producer.send(TOPIC, b"x" * 200)
            with pytest.raises(DeliveryTimeout):
                await first

    run(cluster, work)


def test_a_request_holds_no_more_than_max_request_size() -> None:
    cluster = ScriptedCluster(partitions=10)

    async def work(client: Client) -> None:
        async with Producer(client, batch_size=400, max_request_size=1000) as producer:
            await producer.send(TOPIC, b"first", partition=0)
            deliveries = [producer.post(TOPIC, b"x" * 300, partition=partition) for partition in range(10)]
            await producer.flush()
            assert all(delivery.is_done for delivery in deliveries)

    run(cluster, work)
    assert cluster.requests == 1 + 5


def test_a_broker_that_throttles_is_left_alone_for_so_long() -> None:
    cluster = ScriptedCluster(throttle_ms=4000)

    async def work(client: Client) -> float:
        async with Producer(client) as producer:
            await producer.send(TOPIC, b"1")
            await producer.send(TOPIC, b"2")
            return client.clock.monotonic()

    assert run(cluster, work) == pytest.approx(4, abs=0.1)


def test_a_new_leader_gets_nothing_before_the_old_one_has_answered() -> None:
    cluster = ScriptedCluster(faults=deque([None, 1.0]))

    async def work(client: Client) -> None:
        async with Producer(client, batch_size=1, linger_ms=0) as producer:
            await producer.send(TOPIC, b"0")
            producer.post(TOPIC, b"1")
            await asyncio.sleep(0.1)
            cluster.leaders[0] = 2
            await client.metadata.refresh([TOPIC])
            producer.post(TOPIC, b"2")

    run(cluster, work)
    late = [sent for sent in cluster.sent if sent.broker == 2]
    assert late
    assert all(sent.at > 1 for sent in late)


def test_partitions_that_are_added_are_used_after_metadata_max_age_ms() -> None:
    cluster = ScriptedCluster()

    async def work(client: Client) -> int:
        async with Producer(client, metadata_max_age_ms=1000) as producer:
            await producer.send(TOPIC, b"x")
            cluster.partitions = 2
            await asyncio.sleep(2)
            await producer.send(TOPIC, b"x")
            await asyncio.sleep(1)
            return (await producer.send(TOPIC, b"x", partition=1)).partition

    assert run(cluster, work) == 1


def test_keyless_records_go_to_all_partitions_and_spare_one_that_is_slow() -> None:
    cluster = ScriptedCluster(partitions=3, leaders={2: 2}, seconds_of_broker={2: 0.05})

    async def work(client: Client) -> None:
        async with Producer(client, batch_size=200, linger_ms=0) as producer:
            for number in range(3000):
                producer.post(TOPIC, b"%100d" % number)
                await asyncio.sleep(0.001)

    run(cluster, work)
    counts = [len(cluster.logs[partition]) for partition in range(3)]
    assert sum(counts) == 3000
    assert min(counts[:2]) > 1.5 * counts[2] > 0


def test_a_batch_that_is_too_large_is_split_until_it_fits() -> None:
    cluster = ScriptedCluster(largest_batch=400)

    async def work(client: Client) -> list[int]:
        async with Producer(client, batch_size=5000) as producer:
            deliveries = [producer.post(TOPIC, b"%50d" % number) for number in range(60)]
            await producer.flush()
            assert producer.metrics().buffered_bytes == 0
            return [(await delivery).offset for delivery in deliveries]

    assert run(cluster, work) == list(range(60))
    assert {sent.producer_epoch for sent in cluster.sent} == {0}


def test_many_unseen_failures_are_one_error() -> None:
    cluster = ScriptedCluster(faults=deque([ErrorCode.INVALID_RECORD] * 2))

    async def work(client: Client) -> None:
        async with Producer(client, enable_idempotence=False) as producer:
            for partition_batch in (b"a", b"b"):
                producer.post(TOPIC, partition_batch)
                producer.post(TOPIC, partition_batch)
                with pytest.raises(NotDelivered, match="2 records were not delivered: cannot append to orders-0"):
                    await producer.flush()
            await producer.flush()

    run(cluster, work)


def test_records_that_waited_for_a_topic_go_before_those_posted_when_it_is_known() -> None:
    cluster = ScriptedCluster(metadata_errors=deque([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]))

    async def work(client: Client) -> list[int]:
        async with Producer(client) as producer:
            waiting = [producer.post(TOPIC, value) for value in numbers(3)]
            await asyncio.sleep(0)
            await producer.partition_count(TOPIC)
            later = [producer.post(TOPIC, value) for value in numbers(3)]
            return [(await delivery).offset for delivery in waiting + later]

    assert run(cluster, work) == list(range(6))


def test_what_is_given_up_twice_is_counted_once() -> None:
    cluster = ScriptedCluster(faults=deque([inf]))

    async def work(client: Client) -> int:
        async with Producer(client, delivery_timeout_ms=1000) as producer:
            with pytest.raises(DeliveryTimeout):
                await producer.send(TOPIC, b"x")
            sender = producer._open_sender()
        return sender.fates.records_failed

    assert run(cluster, work) == 1


def test_no_batch_overtakes_the_first_one_at_a_leader_that_knows_nothing_of_the_producer() -> None:
    cluster = ScriptedCluster(partitions=2)

    async def work(client: Client) -> None:
        async with Producer(client, batch_size=1, linger_ms=0) as producer:
            await producer.send(TOPIC, b"the connection is good", partition=0)
            cluster.faults.append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            for value in numbers(8):
                producer.post(TOPIC, value, partition=1)

    run(cluster, work)
    assert cluster.logs[1] == numbers(8)
    assert {sent.producer_epoch for sent in cluster.sent} == {0}


def test_a_key_in_another_buffer_goes_where_its_bytes_go() -> None:
    cluster = ScriptedCluster(partitions=5)

    async def work(client: Client) -> set[int]:
        async with Producer(client) as producer:
            keys = [b"key", bytearray(b"key"), memoryview(b"key")] * 2
            return {(await producer.send(TOPIC, b"x", key=key)).partition for key in keys}

    assert len(run(cluster, work)) == 1
