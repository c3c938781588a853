"""Keys go to the partitions that Java's client and kafka-python choose; keyless records move on batch by batch."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from barnabas.client.partitioner import StickyPartition, murmur2, partition_of_key

# From Apache Kafka's own test of its hash, signed as Java prints it.
JAVA_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "signed"), JAVA_VECTORS.items())
def test_murmur2_is_javas(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=64))
def test_murmur2_is_kafka_pythons(key: bytes) -> None:
    assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF


def test_ten_thousand_keys_go_where_kafka_python_sends_them() -> None:
    keys = [f"key-{number}".encode() for number in range(10_000)]
    assert [partition_of_key(key, 17) for key in keys] == [
        (kafka_python_murmur2(key) & 0x7FFFFFFF) % 17 for key in keys
    ]


def test_keyless_records_stay_until_told_to_move_and_then_move_elsewhere() -> None:
    sticky = StickyPartition(Random(7))
    for _ in range(100):
        before = sticky.current(5)
        assert sticky.current(5) == before
        sticky.next(5)
        assert sticky.current(5) != before
        assert 0 <= sticky.current(5) < 5


def test_a_single_partition_is_never_left() -> None:
    sticky = StickyPartition(Random(7))
    assert sticky.current(1) == 0
    sticky.next(1)
    assert sticky.current(1) == 0
