"""`barnabas group reset`: send a group elsewhere; it shows where, and does so only with --execute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.names import topic_names
from barnabas.cli.options import BootstrapOption, GroupArgument, OutputOption
from barnabas.cli.output import Output, format_table, show
from barnabas.cli.session import administer, parse_place

if TYPE_CHECKING:
    from barnabas import Admin


def reset(
    group: GroupArgument,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="PLACE", help="earliest, latest, 1234, -10, @2h, @2026-11-15T10:00."),
    ] = None,
    shift: Annotated[
        int | None, typer.Option("--shift", metavar="N", help="So many records on, or, below 0, back.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", autocompletion=topic_names, help="Only this topic; may be repeated."),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this one; may be repeated.")
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; without this it is only shown.")] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Send a group to another place, in all partitions that it has committed or in those of a topic.

    Nothing changes without --execute, and the group's consumers have to be stopped. A shift ends at the first record or
    behind the last one.
    """
    if (to is None) == (shift is None):
        raise typer.BadParameter("give either --to or --shift")
    if partition and len(topic or ()) != 1:
        raise typer.BadParameter("--partition goes with one --topic")
    place = None if to is None else parse_place(to, "--to")

    async def work(admin: Admin) -> list[dict[str, Any]]:
        from barnabas.cli import group_moves

        chosen = await group_moves.choose(admin, group, topic or (), partition or ())
        if place is None:
            moves = await group_moves.shifted(admin, group, chosen, shift or 0)
        else:
            moves = await group_moves.placed(admin, group, chosen, place)
        if execute:
            await group_moves.carry_out(admin, group, moves)
        return group_moves.rows(moves)

    rows = administer(bootstrap, work)
    told = f"group {group} was sent there" if execute else "dry run: nothing was changed; --execute does it"
    show({"group": group, "executed": execute, "partitions": rows}, output, f"{format_table(rows)}\n{told}")
