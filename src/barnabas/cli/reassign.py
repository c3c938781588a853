"""`barnabas cluster reassign`: propose a plan or take one, show it, ask, run it and follow it to its end."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli.names import topic_names
from barnabas.cli.options import BootstrapOption, OutputOption
from barnabas.cli.output import Output


def reassign(
    drain: Annotated[
        list[int] | None, typer.Option("--drain", metavar="BROKER", help="Empty this broker; may be repeated.")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", "-r", min=1, help="Change the number of replicas to this.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", autocompletion=topic_names, help="Only this topic; may be repeated."),
    ] = None,
    plan: Annotated[
        Path | None, typer.Option("--plan", metavar="FILE", help="Carry out this plan, in Kafka's JSON.")
    ] = None,
    throttle: Annotated[
        int | None, typer.Option(min=1, metavar="BYTES", help="How many bytes a second each broker may move.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Follow what is under way.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Call off what is under way.")] = False,
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long to follow it; it goes on all the same.")
    ] = 3600,
    bootstrap: BootstrapOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Move replicas: spread them evenly over all brokers, or empty a broker, or change the replication factor.

    The plan is shown before anything moves. With --dry-run -o json it is printed as Kafka's tools and --plan read it.
    """
    if sum(map(bool, (drain or replication_factor or topic, plan, watch, cancel))) > 1:
        raise typer.BadParameter("choose one: --plan, --watch, --cancel, or what a plan should be made for")
    from barnabas.cli import reassigning

    if cancel:
        reassigning.cancel(bootstrap, output)
    elif watch:
        reassigning.watch(bootstrap, timeout, output)
    else:
        state, chosen = reassigning.choose(bootstrap, drain or [], replication_factor, topic or [], plan)
        reassigning.carry_out(
            bootstrap, state, chosen, output, dry_run=dry_run, yes=yes, throttle=throttle, timeout_s=timeout
        )
