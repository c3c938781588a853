"""`barnabas group`: list, describe, reset, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.group_reset import reset
from barnabas.cli.names import group_names
from barnabas.cli.options import BootstrapOption, GroupArgument, OutputOption, examples
from barnabas.cli.output import Output, format_table, show, show_rows
from barnabas.cli.session import administer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas import Admin
    from barnabas.client.admin.groups import GroupListing

app = typer.Typer(
    help="List, describe, reset and delete consumer groups.",
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
)
app.command(
    epilog=examples(
        "barnabas group reset billing --to beginning",
        "barnabas group reset billing --to @2h --topic orders --execute",
        "barnabas group reset billing --to 1234 -t orders -p 0 --execute",
        "barnabas group reset billing --shift -100 --execute",
    )
)(reset)


@app.command("list", epilog=examples("barnabas group list", "barnabas group list -o json"))
def list_(bootstrap: BootstrapOption = None, output: OutputOption = Output.TABLE) -> None:
    """List the groups of all brokers: type and state of each."""

    async def work(admin: Admin) -> Sequence[GroupListing]:
        return await admin.groups.list()

    rows = [
        {"group": each.group_id, "type": each.type, "state": each.state, "protocol_type": each.protocol_type}
        for each in administer(bootstrap, work)
    ]
    show_rows(rows, output)


@app.command(epilog=examples("barnabas group describe billing", "barnabas group describe billing -o json"))
def describe(group: GroupArgument, bootstrap: BootstrapOption = None, output: OutputOption = Output.TABLE) -> None:
    """Show who is in a group, what each member reads, and how far it is behind (its lag).

    A partition that nobody has committed yet has neither a committed offset nor a lag.
    """
    from barnabas.cli.group_state import describe_group

    async def work(admin: Admin) -> dict[str, Any]:
        return await describe_group(admin, group)

    found = administer(bootstrap, work)
    heading = f"group {group}  {found['state']}  protocol {found['type']}  lag {found['lag']}"
    tables = (format_table(found[part]) for part in ("partitions", "members") if found[part])
    show(found, output, "\n\n".join([heading, *tables]))


@app.command(epilog=examples("barnabas group delete billing", "barnabas group delete billing reports"))
def delete(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP...", autocompletion=group_names)],
    bootstrap: BootstrapOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete groups with all that they have committed. Their consumers have to be stopped."""

    async def work(admin: Admin) -> None:
        await admin.groups.delete_many(groups)

    administer(bootstrap, work)
    show([{"group": group} for group in groups], output, "\n".join(f"deleted group {group}" for group in groups))
