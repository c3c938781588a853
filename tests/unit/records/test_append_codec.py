"""Records that a producer appends one by one become the batch that the builder makes of them, on both engines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from barnabas.records import append_codec, engine
from barnabas.records.batch import HEADER_SIZE
from barnabas.records.builder import BatchBuilder
from barnabas.records.record import Header

pytestmark = pytest.mark.usefixtures("either_engine")

# From Apache Kafka's own test of its hash, signed as Java prints it.
JAVA_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
Row = tuple[bytes | None, bytes | None, list[Header], int]
ROWS: list[Row] = [
    (b"key", b"value", [], 1_700_000_000_000),
    (None, None, [], 1_700_000_000_900),
    (b"", b"x" * 5000, [("name", b"content"), ("ü", None)], 1_699_999_999_000),
    (b"k" * 200, b"", [], -1),
]


def filled(rows: list[Row], limit: int) -> append_codec.RecordBuffer:
    buffer: append_codec.RecordBuffer = engine.append_codec.RecordBuffer(limit)
    for index, row in enumerate(rows):
        handle = buffer.append("batch", *row)
        assert handle is not None
        assert (handle.pending, handle.delta, handle.timestamp_ms) == ("batch", index, row[3])
    return buffer


def test_appended_records_are_the_builders() -> None:
    builder = BatchBuilder()
    for row in ROWS:
        builder.append(*row)
    data, count, base_timestamp, max_timestamp = filled(ROWS, 1 << 20).take()
    assert data[HEADER_SIZE:] == builder.build()[HEADER_SIZE:]
    assert (count, base_timestamp) == (len(ROWS), ROWS[0][3])
    assert max_timestamp == max(timestamp for *_, timestamp in ROWS)


@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=40),
            st.none() | st.binary(max_size=300),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3),
            st.integers(-1, 2**61),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_both_engines_write_the_same_bytes(rows: list[Row]) -> None:
    chosen, plain = filled(rows, 1 << 20), append_codec.RecordBuffer(1 << 20)
    for row in rows:
        plain.append(None, *row)
    assert chosen.take() == plain.take()


def test_a_full_buffer_takes_nothing_more_and_stays_as_it_was() -> None:
    buffer = filled([(None, b"x" * 100, [], 5)] * 3, 500)
    size = buffer.size()
    assert buffer.append(None, None, b"y" * 200, (), 5) is None
    assert (len(buffer), buffer.size()) == (3, size)
    assert buffer.append(None, None, b"small", (), 5) is not None
    assert buffer.size() <= 500


def test_the_first_record_fits_whatever_the_limit() -> None:
    buffer = filled([(None, b"x" * 5000, [], 5)], 100)
    assert buffer.append(None, None, b"", (), 5) is None
    assert len(buffer.take()[0]) > 5000


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (("text", b"", (), 5), "key must be bytes or None, not str; is a serializer missing"),
        ((None, 7, (), 5), "value must be bytes or None, not int"),
        ((None, b"", [("h", "text")], 5), "header must be bytes or None, not str"),
        ((None, b"", (), -2), "timestamp -2 is out of range"),
    ],
)
def test_a_record_that_is_refused_leaves_the_batch_as_it_was(row: tuple[object, ...], complaint: str) -> None:
    buffer = filled(ROWS[:1], 1000)
    size = buffer.size()
    with pytest.raises((TypeError, ValueError), match=complaint):
        buffer.append(None, *row)  # type: ignore[arg-type]
    assert (len(buffer), buffer.size()) == (1, size)


def test_other_buffers_than_bytes_are_copied_in() -> None:
    value = bytearray(b"value")
    buffer = filled([(memoryview(b"key"), value, [], 5)], 1000)  # type: ignore[list-item]
    value[:] = b"other"
    assert buffer.take()[0] == filled([(b"key", b"value", [], 5)], 1000).take()[0]


@pytest.mark.parametrize(("key", "signed"), JAVA_VECTORS.items())
def test_murmur2_is_javas(key: bytes, signed: int) -> None:
    assert engine.append_codec.murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=64))
def test_murmur2_is_kafka_pythons(key: bytes) -> None:
    assert engine.append_codec.murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF
