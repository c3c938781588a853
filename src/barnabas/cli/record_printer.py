"""Records on standard output: as lines, by a template, or as rows of a table, of JSON, of YAML."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import typer

from barnabas.cli.output import Output, RowPrinter, readable
from barnabas.cli.record_json import record_fields
from barnabas.client.consume.consumed import ConsumerRecord

Print = Callable[[Sequence[ConsumerRecord]], None]
_NO_RECORD = ConsumerRecord("", 0, 0, 0, None, None)


def record_printer(output: str, key_separator: str | None, template: str | None) -> Print:
    """`output` is `lines`, where the separator and the template count, or one that rows have."""
    if output != "lines":
        rows = RowPrinter(Output(output))
        return lambda records: rows.print([record_fields(record) for record in records])
    if template is not None:
        return _template_printer(template)
    separator = None if key_separator is None else key_separator.encode()

    def print_lines(records: Sequence[ConsumerRecord]) -> None:
        if separator is None:
            lines = [record.value or b"" for record in records]
        else:
            lines = [(record.key or b"") + separator + (record.value or b"") for record in records]
        _write(b"\n".join([*lines, b""]))

    return print_lines


def _template_printer(template: str) -> Print:
    text = template.replace("\\n", "\n").replace("\\t", "\t")
    try:
        text.format_map(_template_fields(_NO_RECORD))
    except (KeyError, ValueError, IndexError) as error:
        known = ", ".join(_template_fields(_NO_RECORD))
        raise typer.BadParameter(f"{error} in {template!r}; the fields are {known}", param_hint="--format") from None

    def print_formatted(records: Sequence[ConsumerRecord]) -> None:
        _write("".join(text.format_map(_template_fields(record)) for record in records).encode())

    return print_formatted


def _template_fields(record: ConsumerRecord) -> dict[str, object]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": "" if record.key is None else readable(record.key),
        "value": "" if record.value is None else readable(record.value),
        "headers": ",".join(f"{name}={'' if value is None else readable(value)}" for name, value in record.headers),
    }


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
