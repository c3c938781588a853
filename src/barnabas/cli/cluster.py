"""`barnabas cluster`: describe, health, reassign, forget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.options import BootstrapOption, OutputOption, examples
from barnabas.cli.output import MOST_ROWS, Colour, Output, counted, fail, format_table, paint, show
from barnabas.cli.reassign import reassign
from barnabas.cli.session import run

if TYPE_CHECKING:
    from barnabas.cli.cluster_state import ClusterState
    from barnabas.client.client import Client

app = typer.Typer(
    help="Describe a cluster, tell whether it is healthy, and move replicas.",
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
)
app.command(
    epilog=examples(
        "barnabas cluster reassign --dry-run",
        "barnabas cluster reassign --drain 3 --throttle 50000000",
        "barnabas cluster reassign -t orders -r 3 --yes",
        "barnabas cluster reassign --watch",
    )
)(reassign)


@app.command(epilog=examples("barnabas cluster describe", "barnabas cluster describe -o json"))
def describe(bootstrap: BootstrapOption = None, output: OutputOption = Output.TABLE) -> None:
    """Show the brokers: address, rack, state, who is the controller, and how much each of them has."""
    from barnabas.cli.cluster_state import broker_rows, look

    state = run(bootstrap, look)
    found: dict[str, Any] = {
        "cluster_id": state.cluster.cluster_id,
        "controller": state.cluster.controller_id,
        "topics": len(state.topics),
        "partitions": len(state.partitions),
        "reassigning": len(state.moves),
        "brokers": broker_rows(state),
    }
    counts = f"{counted(len(state.topics), 'topic')}  {counted(len(state.partitions), 'partition')}"
    show(found, output, f"cluster {found['cluster_id']}  {counts}\n{format_table(found['brokers'])}")


@app.command("health", epilog=examples("barnabas cluster health", "barnabas cluster health -o json || page-someone"))
def health_(bootstrap: BootstrapOption = None, output: OutputOption = Output.TABLE) -> None:
    """Tell whether every broker serves and every partition has its replicas; exit code 1 if not."""
    from barnabas.cli.cluster_state import health, look, min_in_sync

    async def work(client: Client) -> tuple[ClusterState, dict[str, int]]:
        state = await look(client)
        return state, await min_in_sync(client, state)

    found = health(*run(bootstrap, work))
    show(found, output, _for_people(found))
    if not found["healthy"]:
        raise typer.Exit(1)


_TROUBLES = {
    "offline": "without a leader",
    "under_min_isr": "with fewer in-sync replicas than min.insync.replicas",
    "under_replicated": "with replicas that are not in sync",
}


def _for_people(found: dict[str, Any]) -> str:
    brokers = counted(len(found["brokers"]["alive"]), "broker")
    partitions = counted(found["partitions"], "partition")
    if found["healthy"]:
        moving = f", {found['reassigning']} of them moving" if found["reassigning"] else ""
        return f"{paint('healthy', Colour.GREEN)}: {brokers}, {partitions}{moving}"
    lines = [f"{paint('not healthy', Colour.RED)}: {brokers} alive, {partitions}"]
    if found["controller"] is None:
        lines.append("no controller")
    lines += [f"broker {broker} is {what}" for what in ("fenced", "missing") for broker in found["brokers"][what]]
    for trouble, words in _TROUBLES.items():
        if rows := found[trouble]:
            lines += ["", f"{counted(len(rows), 'partition')} {words}:", format_table(rows, MOST_ROWS)]
    return "\n".join(lines)


@app.command(epilog=examples("barnabas cluster forget 3"))
def forget(
    broker: Annotated[int, typer.Argument(metavar="BROKER")],
    bootstrap: BootstrapOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Forget a broker that will not come back. It has to be stopped, and drained (cluster reassign --drain)."""
    from barnabas.cli.cluster_state import look
    from barnabas.client.admin.cluster import Cluster

    async def work(client: Client) -> None:
        state = await look(client)
        if broker in state.alive:
            fail(f"broker {broker} is alive; drain it and stop it first")
        if left := sum(broker in partition.replicas for partition in state.partitions.values()):
            what = f"replicas of {counted(left, 'partition')}"
            fail(f"broker {broker} has {what}; first `barnabas cluster reassign --drain {broker}`")
        await Cluster(client).unregister_broker(broker)

    run(bootstrap, work)
    show({"broker": broker}, output, f"forgot broker {broker}")
