"""`barnabas context`: names for clusters, so that commands need no addresses."""

from __future__ import annotations

from typing import Annotated

import typer

from barnabas.cli import contexts
from barnabas.cli.names import context_names
from barnabas.cli.options import OutputOption, examples, parse_settings
from barnabas.cli.output import Output, fail, show, show_rows

app = typer.Typer(
    help="Name clusters, and choose the one that commands speak to.",
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", autocompletion=context_names)]


@app.command(
    epilog=examples(
        "barnabas context add prod broker1:9092,broker2:9092",
        "barnabas context add far host:9092 --set request_timeout_ms=60000",
    )
)
def add(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    bootstrap_servers: Annotated[str, typer.Argument(metavar="HOST:PORT[,...]")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="OPTION=VALUE", help="An option of the client; may be repeated."),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Also where the name is taken.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Name a cluster. The first one is in use at once."""
    options = _parse_options(bootstrap_servers, settings)
    known = contexts.load()
    if name in known.known and not replace:
        fail(f"context {name!r} is {known.known[name].bootstrap_servers} already; --replace changes it")
    known.known[name] = contexts.Context(bootstrap_servers, options)
    known.current = known.current or name
    contexts.save(known)
    _show_change("added", name, known, output)


@app.command(epilog=examples("barnabas context use prod"))
def use(name: NameArgument, output: OutputOption = Output.TABLE) -> None:
    """Let commands speak to this cluster from now on. BARNABAS_CONTEXT=NAME does so for one shell or command."""
    known = contexts.load()
    known.get(name)
    known.current = name
    contexts.save(known)
    _show_change("using", name, known, output)


@app.command("list", epilog=examples("barnabas context list -o json"))
def list_(output: OutputOption = Output.TABLE) -> None:
    """List the contexts, and tell which one is in use."""
    known = contexts.load()
    rows = [_row(name, known) for name in sorted(known.known)]
    show_rows(rows, output)


@app.command(epilog=examples("barnabas context remove staging"))
def remove(name: NameArgument, output: OutputOption = Output.TABLE) -> None:
    """Forget a name. The cluster stays as it is."""
    known = contexts.load()
    known.get(name)
    row = _row(name, known)
    del known.known[name]
    if known.current == name:
        known.current = None
    contexts.save(known)
    show(row, output, f"removed context {name}")


def _row(name: str, known: contexts.Contexts) -> dict[str, object]:
    context = known.known[name]
    return {
        "context": name,
        "bootstrap_servers": context.bootstrap_servers,
        "options": dict(context.options),
        "in_use": name == known.current,
    }


def _show_change(what: str, name: str, known: contexts.Contexts, output: Output) -> None:
    in_use = " (in use)" if what != "using" and name == known.current else ""
    show(_row(name, known), output, f"{what} context {name}: {known.known[name].bootstrap_servers}{in_use}")


def _parse_options(bootstrap_servers: str, settings: list[str] | None) -> dict[str, int | str]:
    """The client's options as it wants them; a wrong address, name or value is an error of usage."""
    from barnabas.client.client import connect
    from barnabas.client.connections import parse_addresses
    from barnabas.client.options import check_names, options_of

    given, known = parse_settings(settings), options_of(connect)
    try:
        parse_addresses(bootstrap_servers)
        check_names("a context", given, known)
        return {name: _number(name, text) if type(known[name]) is int else text for name, text in given.items()}
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _number(name: str, text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{name}={text} is not a number")
    return int(text)
