"""Records that tasks were unsure of serve as dead letters only if the loads of a run have read the same offsets."""

from __future__ import annotations

from typing import Any, cast

from barnabas.spark.direct.unsure import UnsureRecords
from barnabas.spark.ranges import OffsetRange

FRAMES: list[Any] = [cast("Any", f"frame {number}") for number in range(3)]


def offsets(start: int, end: int, partition: int = 0) -> OffsetRange:
    return OffsetRange("clicks", partition, start, end)


def test_what_loads_have_read_together_needs_no_other_look() -> None:
    unsure = UnsureRecords()
    unsure.keep("clicks", [offsets(0, 50), offsets(0, 10, 1)], FRAMES[0])
    unsure.keep("clicks", [offsets(50, 80)], None)
    unsure.keep("clicks", [offsets(80, 100)], FRAMES[1])
    assert unsure.among("clicks", [offsets(0, 100), offsets(0, 10, 1)]) == FRAMES[:2]


def test_a_gap_another_source_or_more_than_is_wanted_does_not_serve() -> None:
    unsure = UnsureRecords()
    unsure.keep("clicks", [offsets(0, 50)], FRAMES[0])
    unsure.keep("orders", [offsets(50, 100)], FRAMES[1])
    unsure.keep("clicks", [offsets(0, 20, 1)], FRAMES[2])
    assert unsure.among("clicks", [offsets(0, 100)]) is None
    assert unsure.among("clicks", [offsets(0, 50), offsets(0, 10, 1)]) is None
    assert unsure.among("clicks", [offsets(0, 50)]) == [FRAMES[0]]


def test_an_empty_range_needs_no_load() -> None:
    assert UnsureRecords().among("clicks", [offsets(7, 7)]) == []


def test_what_a_second_sink_loads_is_not_kept_twice() -> None:
    unsure, released = UnsureRecords(), list[str]()
    unsure.keep("clicks", [offsets(0, 50)], FRAMES[0], lambda: released.append("first"))
    unsure.keep("clicks", [offsets(0, 50)], FRAMES[1], lambda: released.append("second"))
    assert released == ["second"]
    assert unsure.among("clicks", [offsets(0, 50)]) == [FRAMES[0]]


def test_what_is_done_is_released() -> None:
    unsure, released = UnsureRecords(), list[str]()
    unsure.keep("clicks", [offsets(0, 50), offsets(0, 50, 1)], FRAMES[0], lambda: released.append("first"))
    unsure.keep("clicks", [offsets(50, 90)], FRAMES[1], lambda: released.append("second"))
    unsure.release({("clicks", 0): 90})
    assert released == ["second"]
    unsure.release({("clicks", 0): 90, ("clicks", 1): 50})
    assert released == ["second", "first"]
    unsure.keep("clicks", [offsets(90, 99)], FRAMES[2], lambda: released.append("third"))
    unsure.release()
    assert released == ["second", "first", "third"]
