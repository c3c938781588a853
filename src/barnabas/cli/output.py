"""What the commands print: aligned tables for people, JSON and YAML for programs, colours on a terminal only."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Mapping, Sequence
from enum import Enum, StrEnum
from typing import Any, NoReturn, TextIO

import typer


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


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


def format_table(rows: Sequence[Mapping[str, object]], *, bold: bool | None = None) -> str:
    """Rows under headings made of their keys, numbers to the right; nothing at all for no rows."""
    if not rows:
        return "(none)"
    columns = list(rows[0])
    cells = [[_cell(row[column]) for column in columns] for row in rows]
    titles = [column.replace("_", " ").upper() for column in columns]
    widths = [max(map(len, column)) for column in zip(titles, *cells)]
    is_number = [all(isinstance(row[column], int | float | None) for row in rows) for column in columns]

    def line(texts: Sequence[str]) -> str:
        aligned = [text.rjust(w) if right else text.ljust(w) for text, w, right in zip(texts, widths, is_number)]
        return "  ".join(aligned).rstrip()

    heading = line(titles)
    if bold if bold is not None else has_colours(sys.stdout):
        heading = f"\x1b[1m{heading}\x1b[0m"
    return "\n".join([heading, *map(line, cells)])


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={_cell(item)}" for key, item in value.items()) or "-"
    if isinstance(value, list):
        return ",".join(map(_cell, value)) or "-"
    return str(value)


def has_colours(stream: TextIO) -> bool:
    """Only on a terminal, and only for those who have not declined (https://no-color.org)."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def fail(message: str) -> NoReturn:
    """End with one line on standard error and exit code 1."""
    print(f"barnabas: {message}", file=sys.stderr)
    raise typer.Exit(1)
