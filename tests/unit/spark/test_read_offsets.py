"""Spark's JSON of offsets, and what limits mean in a cluster, which is scripted here."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from barnabas.client.list_offsets import EARLIEST, LATEST, FoundOffset, Isolation
from barnabas.client.metadata import TopicPartition
from barnabas.client.options import WrongOption
from barnabas.spark import offsets
from barnabas.spark.offsets import AtOffsets, AtTimes, Earliest, Latest, Limit, nested, parse_offsets, unnested

ONE, TWO = TopicPartition("a", 0), TopicPartition("b", 12)


def test_offsets_are_read_and_written_as_spark_has_them() -> None:
    text = '{"b": {"12": -1}, "a": {"0": 23}}'
    assert parse_offsets("startingOffsets", text) == {ONE: 23, TWO: LATEST}
    assert nested({TWO: 5, ONE: 23}) == {"a": {"0": 23}, "b": {"12": 5}}
    assert unnested(nested({TWO: 5, ONE: 23})) == {ONE: 23, TWO: 5}


@pytest.mark.parametrize(
    "text",
    ["", "soon", "5", "[]", '{"a": 5}', '{"a": {"x": 5}}', '{"a": {"-1": 5}}', '{"a": {"0": "5"}}', '{"a": {"0": -3}}',
     '{"a": {"0": 1.5}}', '{"a": {"0": true}}'],
)  # fmt: skip
def test_what_is_no_json_of_offsets_is_refused_with_the_right_form(text: str) -> None:
    with pytest.raises(WrongOption, match=r'startingOffsets=.* is not of the form \{"topic": \{"0": 23\}\}'):
        parse_offsets("startingOffsets", text)


@pytest.fixture
def resolve(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Both partitions hold the offsets 100 to 199, and times 1000 to 1999."""
    asked: list[tuple[dict[TopicPartition, int], Isolation]] = []

    def answer(time: int) -> int:
        special = {EARLIEST: 100, LATEST: 200}
        return special[time] if time < 0 else 100 + max(0, time - 1000) // 10 if time < 2000 else -1

    async def list_offsets(_: object, times: Any, isolation: Isolation) -> dict[TopicPartition, FoundOffset]:
        asked.append((dict(times), isolation))
        return {partition: FoundOffset(answer(time), time) for partition, time in times.items()}

    monkeypatch.setattr(offsets, "list_offsets", list_offsets)

    def resolve(limit: Limit) -> dict[TopicPartition, int]:
        client = cast("Any", None)
        return asyncio.run(offsets.resolve_limit(client, [ONE, TWO], limit, Isolation.READ_COMMITTED))

    yield resolve
    assert all(isolation is Isolation.READ_COMMITTED for _, isolation in asked)


@pytest.mark.parametrize(
    ("limit", "found"),
    [
        (Earliest(), (100, 100)),
        (Latest(), (200, 200)),
        (AtOffsets({ONE: 7, TWO: 8}), (7, 8)),
        (AtOffsets({ONE: EARLIEST, TWO: LATEST}), (100, 200)),
        (AtTimes(1500), (150, 150)),
        (AtTimes({ONE: 0, TWO: 1990}), (100, 199)),
        (AtTimes({ONE: 1500, TWO: 2000}, or_latest=True), (150, 200)),
    ],
)
def test_a_limit_is_an_offset_in_every_partition(resolve: Any, limit: Limit, found: tuple[int, int]) -> None:
    assert resolve(limit) == {ONE: found[0], TWO: found[1]}


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        (AtOffsets({ONE: 7}), "startingOffsets says nothing of b-12"),
        (AtOffsets({ONE: 7, TWO: 1, TopicPartition("c", 0): 1}), "startingOffsets names c-0, which is not read"),
        (AtTimes({ONE: 7}, "endingOffsetsByTimestamp"), "endingOffsetsByTimestamp says nothing of b-12"),
        (AtTimes(2000), "a-0 has no record at or after 2000; set startingOffsetsByTimestampStrategy=latest"),
    ],
)
def test_a_limit_that_leaves_a_partition_open_is_refused(resolve: Any, limit: Limit, told: str) -> None:
    with pytest.raises(WrongOption, match=told):
        resolve(limit)
