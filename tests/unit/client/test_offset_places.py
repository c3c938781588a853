"""Places in a partition, as people write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from barnabas.client.offsets import Absolute, Beginning, End, Last, OffsetSpec, Since, parse_offset

NOW_MS = 1_763_200_800_000


def at(*fields: int) -> int:
    return int(datetime(*fields, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc,arg-type]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("beginning", Beginning()),
        ("end", End()),
        ("0", Absolute(0)),
        ("1234", Absolute(1234)),
        ("-10", Last(10)),
        ("-0", Last(0)),
        ("@250ms", Since(NOW_MS - 250)),
        ("@90s", Since(NOW_MS - 90_000)),
        ("@5m", Since(NOW_MS - 300_000)),
        ("@2h", Since(NOW_MS - 7_200_000)),
        ("@7d", Since(NOW_MS - 7 * 86_400_000)),
        ("@2w", Since(NOW_MS - 14 * 86_400_000)),
        ("@1763200800000", Since(1_763_200_800_000)),
        ("@2026-11-15T10:00Z", Since(at(2026, 11, 15, 10))),
        ("@2026-11-15T10:00:30.250+02:00", Since(at(2026, 11, 15, 8, 0, 30) + 250)),
    ],
)
def test_a_place_is_understood(text: str, place: OffsetSpec) -> None:
    assert parse_offset(text, NOW_MS) == place


@pytest.mark.parametrize("text", ["@2026-11-15T10:00", "@2026-11-15"])
def test_a_date_without_a_zone_is_local_time(text: str) -> None:
    expected = int(datetime.fromisoformat(text[1:]).astimezone().timestamp() * 1000)
    assert parse_offset(text, NOW_MS) == Since(expected)


@pytest.mark.parametrize("text", ["", "first", "1.5", "--1", "+3", "@", "@2y", "@tomorrow", "@2026-13-01", "١٢"])
def test_what_is_no_place_is_refused_with_the_text_and_what_it_could_be(text: str) -> None:
    with pytest.raises(ValueError, match=r"@2h") as caught:
        parse_offset(text, NOW_MS)
    assert text in str(caught.value)
