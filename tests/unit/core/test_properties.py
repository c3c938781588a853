"""The .properties format as Java has it: what is written can be read, and mistakes name their line."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.properties import PropertiesError, parse, parse_bytes, render

words = st.text(st.characters(codec="utf-8"), max_size=20)


def pairs(text: str) -> list[tuple[str, str]]:
    return [(name, value) for name, value, _ in parse(text, "f")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb: 2\nc 3\nd\t=\t4\n", [("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")]),
        ("# no\n  ! no\n\n \t\na=#yes!", [("a", "#yes!")]),
        ("a==b=c", [("a", "=b=c")]),
        ("a = : b", [("a", ": b")]),
        ("a", [("a", "")]),
        ("=v", [("", "v")]),
        (r"a\=b\:c\ d=e", [("a=b:c d", "e")]),
        (r"a=\t\n\r\f\\\z\"", [("a", '\t\n\r\f\\z"')]),
        (r"a=\u0041\u20ac\ud83d\ude00", [("a", "A€😀")]),
        ("a=1,\\\n    2,\\\r\n\t3", [("a", "1,2,3")]),
        ("a=1\\\\\nb=2", [("a", "1\\"), ("b", "2")]),
        ("a=1\\\n#2\nb=3", [("a", "1#2"), ("b", "3")]),
        ("a=1\\\n\nb=2", [("a", "1"), ("b", "2")]),
        ("a=1\\", [("a", "1")]),
        ("a=trailing  ", [("a", "trailing  ")]),
        ("a=1\rb=2", [("a", "1"), ("b", "2")]),
        ("a=1\na=2", [("a", "1"), ("a", "2")]),
    ],
)
def test_lines_read_as_java_reads_them(text: str, expected: list[tuple[str, str]]) -> None:
    assert pairs(text) == expected


def test_a_property_knows_the_line_that_it_begins_on() -> None:
    assert [line for _, _, line in parse("# c\na=1\\\n2\n\nb=3", "f")] == [2, 5]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\na=\\u12g4", r"^f:2: \\u wants four hexadecimal digits, not '12g4'$"),
        (b"a=\\ud83d!", "^f:1: half a surrogate pair"),
        (b"a=1\nb=\xe9\n", "^f:2: byte 0xe9 is not UTF-8$"),
    ],
)
def test_a_mistake_names_file_and_line(data: bytes, message: str) -> None:
    with pytest.raises(PropertiesError, match=message):
        parse_bytes(data, "f")


@given(st.dictionaries(words, words, max_size=5))
def test_what_is_written_reads_back_and_is_ascii(properties: dict[str, str]) -> None:
    text = render(properties, comment="one\ntwo")
    assert text.isascii()
    assert text.startswith("#one\n#two\n")
    assert dict(pairs(text)) == properties


@given(st.text())
def test_no_text_does_more_than_be_refused(text: str) -> None:
    with suppress(PropertiesError):
        parse(text, "f")
