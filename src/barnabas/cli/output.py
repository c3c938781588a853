"""What the commands print: aligned tables for people, JSON and YAML for programs, colours on a terminal only."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Mapping, Sequence
from enum import Enum, StrEnum
from typing import Any, NoReturn, TextIO
from unicodedata import combining, east_asian_width

import typer

MOST_ROWS = 100
"""Of a table that people should see the end of."""


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class Colour(StrEnum):
    """What a terminal understands."""

    BOLD = "\x1b[1m"
    RED = "\x1b[31m"
    GREEN = "\x1b[32m"


def show(value: object, output: Output, table: str, *, indent: int | None = 2) -> None:
    """Print `value` for programs, or `table`, its form for people."""
    if output is Output.TABLE:
        text = table
    elif output is Output.JSON:
        text = json.dumps(plain(value), indent=indent, ensure_ascii=False)
    else:
        text = to_yaml(plain(value)).rstrip()
    print(text, flush=True)


def show_rows(rows: Sequence[object], output: Output) -> None:
    """Print values of one kind: dataclasses or mappings, whose fields are the columns."""
    show(rows, output, format_table([plain(row) for row in rows]))


def plain(value: object) -> Any:
    """The value in terms of JSON: what is not text stays readable, and names stand for codes."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return readable(value)
    return value


def readable(data: bytes | bytearray | memoryview) -> str:
    """Bytes as text; what is not UTF-8 shows as escapes such as \\xff."""
    return bytes(data).decode(errors="backslashreplace")


def to_yaml(value: object) -> str:
    import yaml  # only those who ask for YAML pay for its import

    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)


def format_table(rows: Sequence[Mapping[str, object]], most: int | None = None) -> str:
    """Rows under headings made of their keys, `most` of them at the most; `(none)` for no rows."""
    shown = rows[:most]
    more = f"\n... and {len(rows) - len(shown)} more" if len(shown) < len(rows) else ""
    return f"{Table(shown).format(shown)}{more}" if shown else "(none)"


class Table:
    """Columns that are as wide as the rows which it was made from, numbers to the right; headings come once."""

    def __init__(self, rows: Sequence[Mapping[str, object]]) -> None:
        self._columns = list(dict.fromkeys(column for row in rows for column in row))
        self._titles = [column.replace("_", " ").upper() for column in self._columns]
        cells = [self._cells(row) for row in rows]
        self._widths = [max(map(_width, column)) for column in zip(self._titles, *cells)]
        self._is_number = [_are_numbers([row.get(column) for row in rows]) for column in self._columns]
        self._is_begun = False

    def format(self, rows: Sequence[Mapping[str, object]]) -> str:
        lines = [self._line(self._cells(row)) for row in rows]
        if not self._is_begun:
            self._is_begun = True
            heading = self._line(self._titles)
            lines.insert(0, paint(heading, Colour.BOLD))
        return "\n".join(lines)

    def _cells(self, row: Mapping[str, object]) -> list[str]:
        return [_cell(row.get(column)) for column in self._columns]

    def _line(self, texts: Sequence[str]) -> str:
        padded = zip(texts, self._widths, self._is_number)
        return "  ".join(_pad(text, width, right) for text, width, right in padded).rstrip()


class RowPrinter:
    """Rows that come bit by bit: a table whose columns the first ones shape, JSON by lines, YAML by documents."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._table: Table | None = None

    def print(self, rows: Sequence[Mapping[str, object]]) -> None:
        if not rows:
            return
        values = [plain(row) for row in rows]
        if self._output is Output.TABLE:
            self._table = self._table or Table(values)
            print(self._table.format(values), flush=True)
        elif self._output is Output.JSON:
            print("\n".join(json.dumps(value, ensure_ascii=False) for value in values), flush=True)
        else:
            print("".join(f"---\n{to_yaml(value)}" for value in values), end="", flush=True)


def _are_numbers(values: Sequence[object]) -> bool:
    there = [value for value in values if value is not None]
    return bool(there) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in there)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={_cell(item)}" for key, item in value.items()) or "-"
    if isinstance(value, list):
        return ",".join(map(_cell, value)) or "-"
    text = str(value)
    return text if text.isprintable() else "".join(map(_printable, text))


def _printable(character: str) -> str:
    """A newline would break a row, and an escape sequence could command the terminal."""
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def _pad(text: str, width: int, right: bool) -> str:
    padding = " " * (width - _width(text))
    return padding + text if right else text + padding


def _width(text: str) -> int:
    """In columns of a terminal: letters of East Asia take two, accents that stand by themselves none."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text)


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}s"


def paint(text: str, colour: Colour) -> str:
    """Text for standard output in a colour, where that has colours."""
    return f"{colour.value}{text}\x1b[0m" if has_colours(sys.stdout) else text


def has_colours(stream: TextIO) -> bool:
    """Only on a terminal, and only for those who have not declined (https://no-color.org)."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def fail(message: str) -> NoReturn:
    """End with one line on standard error and exit code 1."""
    print(f"barnabas: {message}", file=sys.stderr)
    raise typer.Exit(1)
