"""Tables are aligned, JSON and YAML hold the same values, colours stay on terminals."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from io import StringIO

import pytest
import yaml

from barnabas.cli.output import Output, RowPrinter, format_table, has_colours, show_rows


class Mood(Enum):
    CALM = 1


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    log_start_offset: int | None
    replicas: tuple[int, ...]
    mood: Mood
    key: bytes


ROWS = [Row("a", 5, (1, 2), Mood.CALM, b"k"), Row("longer", None, (), Mood.CALM, b"\xff")]


def test_a_table_aligns_text_left_and_numbers_right() -> None:
    table = format_table([{"name": "a", "offset": 5}, {"name": "longer", "offset": 12345}])
    assert table.splitlines() == ["NAME    OFFSET", "a            5", "longer   12345"]


def test_a_long_table_can_be_cut_and_says_how_much_is_missing() -> None:
    rows = [{"n": number} for number in range(5)]
    assert format_table(rows, 2).splitlines() == ["N", "0", "1", "... and 3 more"]
    assert format_table(rows, 5).splitlines() == ["N", "0", "1", "2", "3", "4"]


def test_an_empty_table_says_so() -> None:
    assert format_table([]) == "(none)"


def test_rows_may_lack_columns_that_others_have() -> None:
    assert format_table([{"a": 1}, {"b": "x"}]).splitlines() == ["A  B", "1  -", "-  x"]


def test_a_table_shows_nulls_lists_enums_and_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(ROWS, Output.TABLE)
    heading, first, second = capsys.readouterr().out.splitlines()
    assert "LOG START OFFSET" in heading
    assert first.split() == ["a", "5", "1,2", "calm", "k"]
    assert second.split() == ["longer", "-", "-", "calm", "\\xff"]


def test_json_and_yaml_hold_the_same_values(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(ROWS, Output.JSON)
    as_json = json.loads(capsys.readouterr().out)
    show_rows(ROWS, Output.YAML)
    as_yaml = yaml.safe_load(capsys.readouterr().out)
    assert as_json == as_yaml
    assert as_json[0] == {"name": "a", "log_start_offset": 5, "replicas": [1, 2], "mood": "calm", "key": "k"}


@pytest.mark.parametrize("output", list(Output))
def test_rows_that_come_bit_by_bit_have_one_heading_and_stay_parsable(
    output: Output, capsys: pytest.CaptureFixture[str]
) -> None:
    printer = RowPrinter(output)
    printer.print([{"n": 1}])
    printer.print([])
    printer.print([{"n": 2}, {"n": 3}])
    text = capsys.readouterr().out
    if output is Output.TABLE:
        assert text.split() == ["N", "1", "2", "3"]
    elif output is Output.JSON:
        assert [json.loads(line) for line in text.splitlines()] == [{"n": 1}, {"n": 2}, {"n": 3}]
    else:
        assert list(yaml.safe_load_all(text)) == [{"n": 1}, {"n": 2}, {"n": 3}]


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_colours_unless_it_declines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert has_colours(Terminal())
    assert not has_colours(StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not has_colours(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_colours(Terminal())


def test_a_pipe_gets_no_colours(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(ROWS, Output.TABLE)
    assert "\x1b" not in capsys.readouterr().out


def test_columns_align_whatever_the_cells_hold() -> None:
    rows = [{"key": "日本", "value": "a\nb\x1b[31m"}, {"key": "e\u0301", "value": "x"}, {"key": "plain", "value": "y"}]
    assert format_table(rows).splitlines() == [
        "KEY    VALUE",
        "日本   a\\nb\\x1b[31m",
        "e\u0301      x",
        "plain  y",
    ]
