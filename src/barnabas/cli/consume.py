"""`barnabas consume`: a topic's records become lines of standard output."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.names import group_names
from barnabas.cli.options import BootstrapOption, TopicArgument, examples
from barnabas.cli.session import choose_partitions, parse_place, run

if TYPE_CHECKING:
    from barnabas.client.client import Client

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class RecordOutput(StrEnum):
    LINES = "lines"
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class IsolationLevel(StrEnum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


@app.command(
    epilog=examples(
        "barnabas consume orders --offset -10 --follow",
        "barnabas consume orders --offset @2h -o json > orders.json",
        "barnabas consume orders --group billing --follow -K ' = '",
        r"barnabas consume orders -n 5 --format '{partition} {offset} {key} {value}\n'",
    )
)
def consume(
    topic: TopicArgument,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            autocompletion=group_names,
            help="Share the topic with this group, go on where it has committed, and commit what is printed.",
        ),
    ] = None,
    offset: Annotated[
        str,
        typer.Option(
            "--offset",
            metavar="PLACE",
            help="beginning, end, 1234, -10, @2h, @2026-11-15T10:00. With --group: where a new group begins.",
        ),
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
    bootstrap: BootstrapOption = None,
    output: Annotated[RecordOutput, typer.Option("--output", "-o", help="How to print records.")] = RecordOutput.LINES,
) -> None:
    """Write a topic's records to standard output, up to the end that it has now."""
    from barnabas.cli.reading import open_consumer, print_records
    from barnabas.cli.record_printer import record_printer

    show = record_printer(output, key_separator, template)
    place = parse_place(offset, "--offset")
    if group is not None and partition:
        raise typer.BadParameter("with --group, the group chooses the partitions: leave --partition away")

    async def work(client: Client) -> None:
        found = choose_partitions(await client.metadata.topic(topic), partition)
        async with open_consumer(client, found, place, group, isolation.value) as consumer:
            await print_records(consumer, show, follow=follow, limit=max_records, commit=group is not None)

    run(bootstrap, work)
