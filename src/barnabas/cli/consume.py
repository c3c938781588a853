"""`barnabas consume`: a topic's records become lines of standard output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated

import typer

from barnabas.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption
from barnabas.cli.output import Output, RowPrinter, readable
from barnabas.cli.record_json import record_fields
from barnabas.cli.session import choose_partitions, parse_place, run
from barnabas.client.client import Client
from barnabas.client.consumer import Consumer
from barnabas.client.list_offsets import Isolation
from barnabas.client.metadata import TopicPartition
from barnabas.records.record import Record

app = typer.Typer(rich_markup_mode=None, add_completion=False)

Print = Callable[[TopicPartition, Sequence[Record]], None]


class RecordOutput(StrEnum):
    LINES = "lines"
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class IsolationLevel(StrEnum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


@app.command()
def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    offset: Annotated[
        str, typer.Option("--offset", metavar="PLACE", help="beginning, end, 1234, -10, @2h, @2026-11-15T10:00.")
    ] = "beginning",
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this one; may be repeated.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for new records instead of stopping.")] = False,
    max_records: Annotated[
        int | None, typer.Option("--max", "-n", metavar="N", min=1, help="Stop after so many records.")
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", metavar="TEXT", help="Print key, separator, value.")
    ] = None,
    template: Annotated[
        str | None,
        typer.Option("--format", metavar="TEXT", help=r"Such as '{partition} {offset} {key} {value} {headers}\n'."),
    ] = None,
    isolation: Annotated[
        IsolationLevel, typer.Option(help="Whether records of open and aborted transactions are read.")
    ] = IsolationLevel.READ_UNCOMMITTED,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: Annotated[RecordOutput, typer.Option("--output", "-o", help="How to print records.")] = RecordOutput.LINES,
) -> None:
    """Write a topic's records to standard output, up to the end that it has now.

    barnabas consume orders --offset -10 --follow -o json
    """
    show = _printer(output, key_separator, template)

    async def work(client: Client) -> None:
        place = parse_place(offset, client.clock.now_ms(), "--offset")
        partitions = choose_partitions(await client.metadata.topic(topic), partition)
        async with Consumer(client, isolation_level=Isolation[isolation.name]) as consumer:
            await consumer.assign_at(partitions, place)
            ends = None if follow else await consumer.end_offsets()
            await print_records(consumer, show, ends, max_records)

    run(bootstrap, work)


async def print_records(
    consumer: Consumer, show: Print, ends: dict[TopicPartition, int] | None, limit: int | None
) -> None:
    """Read on until every partition has reached its end, if there are ends, or `limit` records are printed."""
    left = sys.maxsize if limit is None else limit
    while left:
        for partition, position in consumer.assignment().items():
            if ends is not None and position >= ends[partition]:
                consumer.unassign(partition)
        if not consumer.assignment():
            return
        for fetched in await consumer.poll():
            end = sys.maxsize if ends is None else ends[fetched.partition]
            records = [record for record in fetched.records if record.offset < end][:left]
            if records:
                show(fetched.partition, records)
                left -= len(records)


def _printer(output: RecordOutput, key_separator: str | None, template: str | None) -> Print:
    if output is not RecordOutput.LINES:
        rows = RowPrinter(Output(output.value))
        return lambda partition, records: rows.print([record_fields(partition, record) for record in records])
    if template is not None:
        return _template_printer(template)
    separator = None if key_separator is None else key_separator.encode()

    def print_lines(_: TopicPartition, records: Sequence[Record]) -> None:
        if separator is None:
            lines = [record.value or b"" for record in records]
        else:
            lines = [(record.key or b"") + separator + (record.value or b"") for record in records]
        _write(b"\n".join([*lines, b""]))

    return print_lines


def _template_printer(template: str) -> Print:
    text = template.replace("\\n", "\n").replace("\\t", "\t")
    try:
        text.format_map(_template_fields(TopicPartition("", 0), Record(0, 0, None, None)))
    except (KeyError, ValueError, IndexError) as error:
        known = ", ".join(_template_fields(TopicPartition("", 0), Record(0, 0, None, None)))
        raise typer.BadParameter(f"{error} in {template!r}; the fields are {known}", param_hint="--format") from None

    def print_formatted(partition: TopicPartition, records: Sequence[Record]) -> None:
        lines = [text.format_map(_template_fields(partition, record)) for record in records]
        _write("".join(lines).encode())

    return print_formatted


def _template_fields(partition: TopicPartition, record: Record) -> dict[str, object]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": "" if record.key is None else readable(record.key),
        "value": "" if record.value is None else readable(record.value),
        "headers": ",".join(f"{name}={'' if value is None else readable(value)}" for name, value in record.headers),
    }


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
