"""A plan for replicas on its way: chosen, shown, agreed to, begun, followed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from barnabas.cli import moving
from barnabas.cli import plan as plans
from barnabas.cli.cluster_state import ClusterState, look
from barnabas.cli.copies import Copies, measure, progress
from barnabas.cli.output import MOST_ROWS, Output, counted, fail, format_table, show
from barnabas.cli.session import run
from barnabas.client.client import Client
from barnabas.client.metadata import TopicPartition
from barnabas.core.errors import KafkaError

_INTERRUPTED = 130
_GO_ON = "`barnabas cluster reassign --watch` follows it, and with --cancel in place of --watch it is called off"


def choose(
    bootstrap: str | None, drain: Sequence[int], factor: int | None, topics: Sequence[str], file: Path | None
) -> tuple[ClusterState, plans.Plan]:
    """The cluster as it is, and a plan that fits it."""
    state = run(bootstrap, look)
    if state.moves:
        fail(f"a reassignment of {counted(len(state.moves), 'partition')} is under way; {_GO_ON}")
    try:
        if file is None:
            return state, plans.propose(state, drain, factor, topics)
        return state, plans.check(plans.parse(file.read_text()), state)
    except plans.PlanError as error:
        fail(f"plan {file}: {error}; nothing was changed" if file else str(error))
    except (OSError, UnicodeDecodeError) as error:
        fail(f"cannot read plan {file}: {error.strerror if isinstance(error, OSError) else 'it is not text'}")


def carry_out(
    bootstrap: str | None,
    state: ClusterState,
    chosen: plans.Plan,
    output: Output,
    *,
    dry_run: bool,
    yes: bool,
    throttle: int | None,
    timeout_s: float,
) -> None:
    """Show the plan; then, with the user's consent, do it."""
    copies = run(bootstrap, lambda client: _measure(client, chosen, state))
    shown = _for_people(chosen, state, copies)
    if dry_run:
        show(plans.to_kafka(chosen), output, shown)
    elif not chosen:
        show({"moved": []}, output, shown)
    else:
        print(shown, file=sys.stdout if output is Output.TABLE else sys.stderr)
        _confirm(yes)
        _begin(bootstrap, chosen, state, throttle)
        _follow(bootstrap, copies, timeout_s, output, lifts_throttle=throttle is not None)


def watch(bootstrap: str | None, timeout_s: float, output: Output) -> None:
    _follow(bootstrap, run(bootstrap, moving.under_way), timeout_s, output, lifts_throttle=True)


async def _measure(client: Client, chosen: plans.Plan, state: ClusterState) -> Copies:
    before = state.partitions
    targets = {
        partition: tuple(replica for replica in replicas if replica not in before[partition].replicas)
        for partition, replicas in chosen.items()
    }
    return await measure(client, targets, {partition: info.leader for partition, info in before.items()})


def _for_people(chosen: plans.Plan, state: ClusterState, copies: Copies) -> str:
    if not chosen:
        return "nothing to move: replicas are where they should be"
    from rich.filesize import decimal

    rows = plans.rows(chosen, state.partitions)
    count = sum(map(len, copies.targets.values()))
    size = decimal(copies.bytes_of(copies.targets))
    summary = f"{counted(len(rows), 'partition')} change; {counted(count, 'replica')} to copy, {size}"
    brokers = plans.broker_rows(chosen, state)
    return f"{format_table(rows, MOST_ROWS)}\n\n{format_table(brokers)}\n\n{summary}"


def _confirm(yes: bool) -> None:
    try:
        if yes or typer.confirm("Go ahead?", err=True):
            return
    except typer.Abort:
        print(file=sys.stderr)
    fail("nothing was changed; --yes goes ahead without asking")


def _begin(bootstrap: str | None, chosen: plans.Plan, state: ClusterState, throttle: int | None) -> None:
    async def work(client: Client) -> dict[TopicPartition, KafkaError]:
        return await moving.begin(client, chosen, state.partitions, throttle)

    if refusals := run(bootstrap, work):
        first = next(iter(refusals.values()))
        fail(f"{len(refusals)} of {counted(len(chosen), 'partition')} cannot move: {first}. The others do; {_GO_ON}")


def _follow(bootstrap: str | None, copies: Copies, timeout_s: float, output: Output, *, lifts_throttle: bool) -> None:
    """To the end of the moves, of the time, or of the user's patience."""
    moved = copies.targets.keys()

    async def work(client: Client) -> bool:
        with progress(copies) as on_progress:
            has_ended = await moving.follow(client, copies, on_progress, timeout_s)
        if has_ended and lifts_throttle:
            await moving.lift_throttle(client)
        if has_ended:
            await moving.let_preferred_lead(client, moved)
        return has_ended

    try:
        has_ended = run(bootstrap, work)
    except KeyboardInterrupt:
        print(f"\nthe reassignment goes on; {_GO_ON}", file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None
    if not has_ended:
        fail(f"the reassignment is not at its end after {timeout_s:g} s and goes on; {_GO_ON}")
    told = f"moved {counted(len(moved), 'partition')}" if moved else "nothing is moving"
    show({"moved": [str(partition) for partition in sorted(moved)]}, output, told)


def cancel(bootstrap: str | None, output: Output) -> None:
    called_off = run(bootstrap, moving.call_off)
    told = (
        f"called off the reassignment of {counted(len(called_off), 'partition')}" if called_off else "nothing is moving"
    )
    show({"called_off": [str(partition) for partition in called_off]}, output, told)
