"""`barnabas topic trim`: drop the oldest records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.options import BootstrapOption, OutputOption, TopicArgument
from barnabas.cli.output import Output, show_rows
from barnabas.cli.session import choose_partitions, parse_place, run

if TYPE_CHECKING:
    from barnabas import TopicPartition
    from barnabas.client.client import Client


def trim(
    name: TopicArgument,
    before: Annotated[
        str, typer.Option("--before", metavar="OFFSET", help="The first record to keep: 1234, -10, @2h, end.")
    ],
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this one; may be repeated.")
    ] = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Drop the oldest records of a topic for good."""

    place = parse_place(before, "--before")

    async def work(client: Client) -> dict[TopicPartition, int]:
        from barnabas.cli.places import offsets_at
        from barnabas.client.admin.records import Records
        from barnabas.client.admin.topics import Topics

        partitions = choose_partitions(await Topics(client).describe(name), partition)
        return await Records(client).delete(await offsets_at(client, partitions, place))

    trimmed = sorted(run(bootstrap, work).items())
    rows = [{"topic": p.topic, "partition": p.partition, "log_start_offset": low} for p, low in trimmed]
    show_rows(rows, output)
