"""Keys go to the partitions that kafka-python chooses; keyless records go round, and spare partitions that lag."""

from __future__ import annotations

from collections import Counter
from random import Random

from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from barnabas.client.produce.partitioner import StickyPartition, partition_of_key


def test_ten_thousand_keys_go_where_kafka_python_sends_them() -> None:
    keys = [f"key-{number}".encode() for number in range(10_000)]
    assert [partition_of_key(key, 17) for key in keys] == [
        (kafka_python_murmur2(key) & 0x7FFFFFFF) % 17 for key in keys
    ]


def drawn(waiting_batches: list[int | None], times: int = 3000) -> Counter[int]:
    sticky = StickyPartition(Random(7))
    counts: Counter[int] = Counter()
    for _ in range(times):
        sticky.move(waiting_batches)
        counts[sticky.current] += 1
    return counts


def test_partitions_that_are_alike_get_alike() -> None:
    counts = drawn([2, 2, 2])
    assert all(900 < counts[partition] < 1100 for partition in range(3))


def test_a_partition_with_more_batches_waiting_gets_fewer_records() -> None:
    counts = drawn([0, 3, 9])  # 10, 7 and 1 lots
    assert counts[0] > counts[1] > 5 * counts[2] > 0


def test_a_partition_without_a_leader_gets_nothing_while_another_has_one() -> None:
    assert set(drawn([None, 5, None])) == {1}
    assert set(drawn([None, None])) == {0, 1}
