"""`barnabas config`: describe, set, unset."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.names import resource_names
from barnabas.cli.options import BootstrapOption, OutputOption, examples, parse_settings
from barnabas.cli.output import Output, fail, show, show_rows
from barnabas.cli.session import administer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas import Admin
    from barnabas.client.admin.configs import ConfigEntry

app = typer.Typer(
    help="Show and change settings of topics and brokers while they serve.",
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
)

ALL_BROKERS = "all"


class Kind(StrEnum):
    TOPIC = "topic"
    BROKER = "broker"


KindArgument = Annotated[Kind, typer.Argument(metavar="topic|broker")]
NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME", autocompletion=resource_names, help=f"Of the topic, or a broker's id, or `{ALL_BROKERS}`."
    ),
]


@app.command(
    epilog=examples(
        "barnabas config describe topic orders",
        "barnabas config describe broker 1 --all -o json",
        "barnabas config describe broker all",
        "barnabas config describe topic orders -k retention.ms",
    )
)
def describe(
    kind: KindArgument,
    name: NameArgument,
    key: Annotated[
        list[str] | None, typer.Option("--key", "-k", metavar="KEY", help="Only this setting; may be repeated.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", "-a", help="Also settings that have their defaults.")] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the settings of a topic or broker, and where each comes from.

    `broker all` is what was set for all brokers together.
    """

    resource = _name(kind, name)

    async def work(admin: Admin) -> Mapping[str, ConfigEntry]:
        return await admin.configs.describe(_type(kind), resource, key)

    found = administer(bootstrap, work)
    for wanted in key or ():
        if wanted not in found:
            fail(f"{kind.value} {name} has no setting {wanted!r}; --all without --key shows those that there are")
    show_rows([_row(entry) for entry in found.values() if all_ or key or entry.source.name != "DEFAULT"], output)


@app.command(
    "set",
    epilog=examples(
        "barnabas config set topic orders retention.ms=86400000 cleanup.policy=compact",
        "barnabas config set broker all log.retention.ms=3600000",
        "barnabas config set broker 1 leader.replication.throttled.rate=10000000",
    ),
)
def set_(
    kind: KindArgument,
    name: NameArgument,
    settings: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...")],
    bootstrap: BootstrapOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change settings of a topic or broker; those that are not named stay as they are."""
    _change(kind, name, bootstrap, output, set_to=parse_settings(settings))


@app.command(
    epilog=examples(
        "barnabas config unset topic orders retention.ms", "barnabas config unset broker all log.retention.ms"
    )
)
def unset(
    kind: KindArgument,
    name: NameArgument,
    keys: Annotated[list[str], typer.Argument(metavar="KEY...")],
    bootstrap: BootstrapOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Return settings of a topic or broker to what they inherit."""
    _change(kind, name, bootstrap, output, unset=keys)


def _change(
    kind: Kind,
    name: str,
    bootstrap: str | None,
    output: Output,
    *,
    set_to: Mapping[str, str] | None = None,
    unset: Sequence[str] = (),
) -> None:
    changed, resource = set_to or {}, _name(kind, name)

    async def work(admin: Admin) -> None:
        await admin.configs.alter(_type(kind), resource, set_=changed, delete=unset)

    administer(bootstrap, work)
    told = [*(f"set {key}={value}" for key, value in changed.items()), *(f"unset {key}" for key in unset)]
    change = {"kind": kind.value, "name": name, "set": dict(changed), "unset": list(unset)}
    show(change, output, "\n".join(f"{kind.value} {name}: {each}" for each in told))


def _type(kind: Kind) -> Any:
    from barnabas.client.admin.configs import ResourceType

    return ResourceType[kind.name]


def _name(kind: Kind, name: str) -> str:
    """As the protocol has it, where all brokers are the empty name."""
    if kind is Kind.BROKER and not name.isdecimal() and name != ALL_BROKERS:
        raise typer.BadParameter(f"{name!r} is neither a broker's id nor {ALL_BROKERS!r}", param_hint="NAME")
    return "" if kind is Kind.BROKER and name == ALL_BROKERS else name


def _row(entry: ConfigEntry) -> dict[str, object]:
    value = "(hidden)" if entry.sensitive and entry.value is None else entry.value
    return {"key": entry.name, "value": value, "source": entry.source, "read_only": entry.read_only}
