"""`barnabas txn`: list, describe, producers, hanging, abort, fence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.options import BootstrapOption, OutputOption, TopicArgument, examples
from barnabas.cli.output import Output, fail, format_table, show, show_rows
from barnabas.cli.session import administer, choose_partitions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas import Admin
    from barnabas.client.admin.transactions import FencedProducer, TransactionDescription, TransactionListing

app = typer.Typer(
    help="Look at transactions and producers, and abort what hangs.",
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
)

IdArgument = Annotated[str, typer.Argument(metavar="TRANSACTIONAL_ID")]
PartitionOption = Annotated[
    list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this one; may be repeated.")
]


@app.command("list", epilog=examples("barnabas txn list", "barnabas txn list -o json"))
def list_(bootstrap: BootstrapOption = None, output: OutputOption = Output.TABLE) -> None:
    """List the transactional ids of all brokers, and the state of each."""

    async def work(admin: Admin) -> Sequence[TransactionListing]:
        return await admin.transactions.list()

    show_rows(administer(bootstrap, work), output)


@app.command(epilog=examples("barnabas txn describe billing-1", "barnabas txn describe billing-1 -o json"))
def describe(
    transactional_id: IdArgument, bootstrap: BootstrapOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Show the producer of a transactional id, its time-out, and what its open transaction has written to."""

    async def work(admin: Admin) -> TransactionDescription:
        return await admin.transactions.describe(transactional_id)

    found = administer(bootstrap, work)
    row = {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.timeout_ms,
        "start_time_ms": found.start_time_ms,
        "partitions": [str(partition) for partition in found.partitions],
    }
    show(row, output, format_table([row]))


@app.command(epilog=examples("barnabas txn producers orders", "barnabas txn producers orders -p 0 -o json"))
def producers(
    topic: TopicArgument,
    partition: PartitionOption = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show who writes to a topic with a producer id, and where an open transaction begins."""

    async def work(admin: Admin) -> list[dict[str, Any]]:
        from barnabas.cli import txn_state

        return await txn_state.producers(admin, choose_partitions(await admin.topics.describe(topic), partition))

    show_rows(administer(bootstrap, work), output)


@app.command(epilog=examples("barnabas txn hanging orders", "barnabas txn hanging orders -o json"))
def hanging(
    topic: TopicArgument,
    partition: PartitionOption = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Find transactions that are open in a topic and that no coordinator is going to end.

    They hold up every reader of committed records. `barnabas txn abort` ends one.
    """

    async def work(admin: Admin) -> list[dict[str, Any]]:
        from barnabas.cli import txn_state

        return await txn_state.hanging(admin, choose_partitions(await admin.topics.describe(topic), partition))

    show_rows(administer(bootstrap, work), output)


@app.command(epilog=examples("barnabas txn abort orders -p 0 --start-offset 1234"))
def abort(
    topic: TopicArgument,
    partition: Annotated[int, typer.Option("--partition", "-p", min=0)],
    start_offset: Annotated[int, typer.Option(min=0, help="Where it begins, as `txn hanging` tells.")],
    force: Annotated[bool, typer.Option("--force", help="Also if its coordinator knows it.")] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Abort a transaction that hangs in a partition. What it wrote there will never be read as committed."""

    async def work(admin: Admin) -> dict[str, Any]:
        from barnabas.cli import txn_state

        [chosen] = choose_partitions(await admin.topics.describe(topic), [partition])
        look = txn_state.producers if force else txn_state.hanging
        found = [row for row in await look(admin, [chosen]) if row["transaction_start_offset"] == start_offset]
        if not found:
            what = f"no {'open' if force else 'hanging'} transaction of {chosen} begins at offset {start_offset}"
            fail(f"{what}; `barnabas txn producers {topic}` shows those that are open")
        await admin.transactions.abort(chosen, start_offset)
        return found[0]

    row = administer(bootstrap, work)
    show(row, output, f"aborted the transaction of producer {row['producer_id']} in {topic}-{partition}")


@app.command(epilog=examples("barnabas txn fence billing-1"))
def fence(transactional_id: IdArgument, bootstrap: BootstrapOption = None, output: OutputOption = Output.TABLE) -> None:
    """Shut out whoever writes under a transactional id, and abort what it has open."""

    async def work(admin: Admin) -> FencedProducer:
        return await admin.transactions.fence(transactional_id)

    fenced = administer(bootstrap, work)
    row = {
        "transactional_id": transactional_id,
        "producer_id": fenced.producer_id,
        "producer_epoch": fenced.producer_epoch,
    }
    show(row, output, f"fenced {transactional_id}: its epoch is {fenced.producer_epoch} now")
