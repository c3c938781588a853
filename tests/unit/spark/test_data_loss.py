"""What a stream has lost is told apart, named, and costs nothing more than what is lost."""

from __future__ import annotations

import pytest

from barnabas.client.metadata import TopicPartition
from barnabas.spark.data_loss import Cause, DataLost, Loss, Now, find_losses
from barnabas.spark.ranges import OffsetRange
from barnabas.spark.stream_places import Place, load_place

ORDERS = TopicPartition("orders", 0)
OLD, NEW = "old-id", "new-id"


def place(offset: int, epoch: int = 3, topic_id: str = OLD) -> Place:
    return Place({ORDERS: offset}, {ORDERS: epoch}, {"orders": topic_id}, "group")


def look(start: Place, end: Place, now: Now | None) -> tuple[tuple[int, int], list[tuple[Cause, int, int | None]]]:
    [found], losses = find_losses(start, end, {ORDERS: now})
    assert (found.topic, found.partition) == ORDERS
    return (found.start, found.end), [(loss.cause, loss.first, loss.end) for loss in losses]


NOTHING_YET = Place({}, {}, {}, "group")


@pytest.mark.parametrize(
    ("start", "end", "now", "read", "lost"),
    [
        pytest.param(place(10), place(20), Now(OLD, 0), (10, 20), [], id="nothing is lost"),
        pytest.param(place(10), place(20), Now(OLD, 10), (10, 20), [], id="retention took what was read"),
        pytest.param(
            place(10), place(20), Now(OLD, 15), (15, 20), [(Cause.RETENTION, 10, 15)], id="retention took some"
        ),
        pytest.param(
            place(10), place(20), Now(OLD, 25), (25, 25), [(Cause.RETENTION, 10, 25)], id="retention took all"
        ),
        pytest.param(
            place(10), place(4, 0, NEW), Now(NEW, 0), (0, 4), [(Cause.RECREATED, 10, None)], id="recreated, shorter"
        ),
        pytest.param(
            place(10), place(40, 0, NEW), Now(NEW, 2), (2, 40), [(Cause.RECREATED, 10, None)], id="recreated, longer"
        ),
        pytest.param(
            place(10), place(20), Now(NEW, 0), (20, 20), [(Cause.RECREATED, 10, 20)], id="recreated after the plan"
        ),
        pytest.param(place(10), place(20), None, (20, 20), [(Cause.DELETED, 10, 20)], id="deleted after the plan"),
        pytest.param(
            place(10, 3),
            place(9, 5),
            Now(OLD, 0, start_epoch_end=8),
            (8, 9),
            [(Cause.TRUNCATED, 8, 10)],
            id="cut off",
        ),
        pytest.param(
            place(10, 3),
            place(30, 5),
            Now(OLD, 0, start_epoch_end=8),
            (8, 30),
            [(Cause.TRUNCATED, 8, 10)],
            id="cut off and grown past",
        ),
        pytest.param(
            place(10, 3), place(30, 5), Now(OLD, 0, start_epoch_end=12), (10, 30), [], id="another leader, all there"
        ),
        pytest.param(
            place(10, 3),
            place(30, 3),
            Now(OLD, 0, end_epoch_end=25),
            (10, 25),
            [(Cause.TRUNCATED, 25, 30)],
            id="cut off after the plan",
        ),
        pytest.param(
            place(10, 3),
            place(30, 5),
            Now(OLD, 9, start_epoch_end=8),
            (9, 30),
            [(Cause.TRUNCATED, 8, 10), (Cause.RETENTION, 8, 9)],
            id="cut off, then retention",
        ),
        pytest.param(
            Place({ORDERS: 10}),
            place(4, 0, NEW),
            Now(NEW, 0),
            (4, 4),
            [(Cause.SHORTER, 4, 10)],
            id="shorter, and nothing known of before",
        ),
        pytest.param(NOTHING_YET, place(20), Now(OLD, 0), (0, 20), [], id="a new partition"),
        pytest.param(
            NOTHING_YET, place(20), Now(OLD, 5), (5, 20), [(Cause.FOUND_LATE, 0, 5)], id="a new partition found late"
        ),
    ],
)
def test_what_was_lost_is_told_apart_and_the_rest_is_read(
    start: Place, end: Place, now: Now | None, read: tuple[int, int], lost: list[tuple[Cause, int, int | None]]
) -> None:
    assert look(start, end, now) == (read, lost)


def test_a_partition_that_is_no_longer_read_is_not_in_the_plan() -> None:
    other = TopicPartition("returns", 0)
    start = Place({ORDERS: 1, other: 5})

    ranges, losses = find_losses(start, place(2), {ORDERS: Now(OLD, 0)})

    assert ranges == [OffsetRange("orders", 0, 1, 2)]
    assert losses == []


@pytest.mark.parametrize("cause", Cause)
def test_a_loss_is_told_with_partition_and_offsets(cause: Cause) -> None:
    told = str(Loss(ORDERS, cause, 10, 15))

    assert told.startswith("orders-0: ")
    assert "10" in told or "'orders'" in told
    assert "{" not in told


def test_an_error_of_many_losses_names_some_and_counts_the_rest() -> None:
    error = DataLost([Loss(TopicPartition("orders", index), Cause.RETENTION, 0, 5) for index in range(50)])

    assert "orders-9: offsets 0 to 4 were removed" in str(error)
    assert "orders-10:" not in str(error)
    assert "and 40 more" in str(error)
    assert "failOnDataLoss=false" in str(error)


def test_a_place_is_written_as_spark_writes_it_and_read_back() -> None:
    known = Place({ORDERS: 23, TopicPartition("orders", 10): 7}, {ORDERS: 4}, {"orders": OLD}, "billing")

    written = known.dump()

    assert written["orders"] == {"0": 23, "10": 7}
    assert load_place(written) == known


def test_a_place_of_sparks_own_source_is_understood() -> None:
    assert load_place({"orders": {"0": 23}}) == Place({ORDERS: 23})
