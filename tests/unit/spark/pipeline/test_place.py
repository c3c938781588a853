from __future__ import annotations

import pytest

from barnabas.spark.pipeline.errors import SinkError
from barnabas.spark.pipeline.place import Place
from barnabas.spark.pipeline.sinks import Batch

FIRST = Batch(0, "q", {("a", 0): 0, ("b", 10): 5}, {("a", 0): 3, ("b", 10): 9})


def test_a_place_comes_back_from_its_text() -> None:
    place = Place({("b.c", 10): 9, ("a", 0): 3, ("a", 2): 0}, {"q": 4})
    assert Place.parse(str(place)) == place


def test_the_same_place_has_the_same_text() -> None:
    assert str(Place({("a", 1): 1, ("a", 0): 2})) == str(Place({("a", 0): 2, ("a", 1): 1}))


def test_what_a_batch_does_not_read_stays_where_it_is() -> None:
    assert Place({("z", 0): 7}).after(FIRST).offsets == {("z", 0): 7, ("a", 0): 3, ("b", 10): 9}


def test_a_batch_is_done_when_all_its_partitions_are() -> None:
    assert not Place().has(FIRST)
    assert Place().after(FIRST).has(FIRST)
    assert Place({("a", 0): 30, ("b", 10): 90}).has(FIRST)


def test_records_that_were_skipped_do_no_harm() -> None:
    assert not Place({("a", 0): 3}).has(Batch(1, "q", {("a", 0): 8}, {("a", 0): 9}))


def test_a_batch_that_is_done_in_part_is_refused() -> None:
    with pytest.raises(SinkError, match="has a-0 up to offset 2, and batch 0 begins at 0: another run has moved on"):
        Place({("a", 0): 2}).has(FIRST)


def test_batches_of_stateful_queries_are_known_by_query_and_number() -> None:
    place = Place({("a", 0): 2}).after(Batch(3, "q", {}, {}))
    assert [place.has(Batch(number, query, {}, {})) for number, query in [(3, "q"), (4, "q"), (0, "r")]] == [
        True,
        False,
        False,
    ]
