"""Groups and transactional ids are spread over partitions as Java does it."""

from __future__ import annotations

import pytest

from barnabas.coordinator.placement import java_hash, partition_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("hello world", 1794106052),
        ("Aa", 2112),
        ("BB", 2112),  # the textbook's collision
        ("Hello, World!", 1498789909),
        ("polygenelubricants", -(2**31)),
        ("GydZG_", -(2**31)),
        ("\u00e9", 233),
        ("\uffff", 65535),
        ("\U0001f600", 1772899),  # two code units, 0xD83D and 0xDE00
        ("\ud83d", 55357),  # half of it, which a broken client may send
    ],
)
def test_the_hash_is_javas(text: str, expected: int) -> None:
    assert java_hash(text) == expected


@pytest.mark.parametrize(
    ("key", "partitions", "expected"),
    [
        ("hello", 50, 22),
        ("hello", 1, 0),
        ("orders", 50, 31),  # -1008770331
        ("orders", 7, 1008770331 % 7),
        ("polygenelubricants", 50, 0),  # the one hash without an absolute value counts as 0
        ("polygenelubricants", 7, 0),
        ("\U0001f600", 50, 49),
    ],
)
def test_the_partition_is_the_remainder_of_the_absolute_value(key: str, partitions: int, expected: int) -> None:
    assert partition_of(key, partitions) == expected
