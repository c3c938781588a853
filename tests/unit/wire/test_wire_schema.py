from __future__ import annotations

import pytest

from barnabas.wire.schema import (
    ZERO_UUID,
    Buffer,
    Versions,
    array,
    int32,
    nested,
    records,
    request,
    schema,
    schema_of,
    string,
    struct,
    table_of,
    uuid,
)


@struct
class Inner:
    number: int = int32(default=-1)


@schema(versions="0-3", flexible="2+")
class Outer:
    name: str | None = string("1+", nullable="2+", default=None)
    topic_id: bytes = uuid()
    inner: Inner = nested(Inner)
    numbers: list[int] = array(int32)
    data: Buffer | None = records(nullable="0+")


def test_a_message_is_a_dataclass_in_which_every_field_has_its_default() -> None:
    made = Outer()
    assert made == Outer(None, ZERO_UUID, Inner(-1), [], None)
    assert made.inner is not Outer().inner
    assert made.numbers is not Outer().numbers


def test_a_message_has_slots_and_can_be_changed() -> None:
    made = Outer(name="a")
    made.name = "b"
    assert made != Outer(name="a")
    with pytest.raises(AttributeError):
        made.nmae = "c"  # type: ignore[attr-defined]


def test_the_table_keeps_the_order_of_the_class() -> None:
    assert [field.name for field in table_of(Outer)] == ["name", "topic_id", "inner", "numbers", "data"]
    assert schema_of(Outer) == ("data", -1, (0, 3), (2, 0x7FFF))


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("0+", [0, 99], []), ("3-7", [3, 7], [2, 8]), ("4", [4], [3, 5]), ("none", [], [0, 1])],
)
def test_versions_are_closed_ranges(text: str, inside: list[int], outside: list[int]) -> None:
    versions = Versions.parse(text)
    assert str(versions) == text
    assert all(versions.has(version) for version in inside)
    assert not any(versions.has(version) for version in outside)


def test_an_attribute_that_declares_no_field_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Wrong\.size declares no field"):

        @struct
        class Wrong:
            size: int = 3


def test_a_tag_without_versions_is_refused() -> None:
    with pytest.raises(TypeError, match="go together"):
        int32(tag=0)


def test_records_cannot_be_tagged() -> None:
    with pytest.raises(TypeError, match="records cannot be tagged"):
        records(tag=0, tagged="0+")


def test_a_struct_that_is_no_message_has_no_schema() -> None:
    with pytest.raises(TypeError, match="Inner is no message"):
        schema_of(Inner)


def test_a_request_knows_its_key() -> None:
    @request(key=7, versions="1", flexible="none")
    class SomeRequest:
        number: int = int32()

    assert schema_of(SomeRequest) == ("request", 7, (1, 1), (0, -1))
