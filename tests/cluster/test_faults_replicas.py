"""The comparison of replicas can tell: a test of the tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from barnabas.records.batch import CorruptBatch
from barnabas.records.builder import BatchBuilder
from tests.cluster.faults_replicas import diverging
from tests.cluster.three_brokers import NUMBERS, Cluster

TOPIC = "topic"


def batch(offset: int, value: bytes) -> bytes:
    builder = BatchBuilder()
    builder.append(None, value)
    return bytes(builder.build(offset))


FIRST, SECOND, THIRD, OTHER = batch(0, b"a"), batch(1, b"b"), batch(2, b"c"), batch(2, b"d")


def replicas(directory: Path, *logs: Sequence[bytes]) -> Cluster:
    """Brokers that do not run; each has the segments that are given."""
    cluster = Cluster(directory)
    for number, segments in zip(NUMBERS, logs):
        partition = cluster.data_dir(number) / f"{TOPIC}-0"
        partition.mkdir(parents=True)
        for index, segment in enumerate(segments):
            (partition / f"{index:020d}.log").write_bytes(segment)
    return cluster


def test_replicas_may_begin_their_segments_elsewhere(tmp_path: Path) -> None:
    cluster = replicas(tmp_path, [FIRST, SECOND + THIRD], [FIRST + SECOND, THIRD], [FIRST + SECOND + THIRD])
    assert diverging(cluster, TOPIC, [3]) == []


def test_a_difference_counts_below_the_watermark_only(tmp_path: Path) -> None:
    cluster = replicas(tmp_path, [FIRST, SECOND, THIRD], [FIRST, SECOND, OTHER], [FIRST, SECOND])
    assert diverging(cluster, TOPIC, [2]) == []
    (tmp_path / "broker-3" / f"{TOPIC}-0" / f"{2:020d}.log").write_bytes(OTHER)
    (found,) = diverging(cluster, TOPIC, [3])
    assert found.startswith("topic-0 up to 3: ")


@pytest.mark.parametrize(
    ("log", "error"),
    [([FIRST, SECOND], CorruptBatch), ([FIRST, THIRD], AssertionError), ([FIRST, SECOND, THIRD[:-1]], CorruptBatch)],
)
def test_a_record_that_is_missing_or_damaged_is_an_error(
    tmp_path: Path, log: list[bytes], error: type[Exception]
) -> None:
    cluster = replicas(tmp_path, [FIRST, SECOND, THIRD], [FIRST, SECOND, THIRD], log)
    with pytest.raises(error):
        diverging(cluster, TOPIC, [3])
