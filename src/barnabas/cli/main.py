"""The `barnabas` command.

A table names the verbs; each is one module with a typer `app`, imported only when it is called, so that
`barnabas --help` and the shell's completion stay quick.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from barnabas import __version__
from barnabas.core.errors import KafkaError


class Verb(NamedTuple):
    module: str
    help: str


VERBS = {
    "up": Verb("barnabas.cli.up", "Start a broker, or several, on this machine, ready at once."),
    "broker": Verb("barnabas.cli.broker", "Start a broker from a configuration file."),
    "cluster": Verb("barnabas.cli.cluster", "Describe a cluster, tell whether it is healthy, move replicas."),
    "topic": Verb("barnabas.cli.topic", "Create, list, describe, alter, delete and trim topics."),
    "produce": Verb("barnabas.cli.produce", "Write lines of standard input to a topic."),
    "consume": Verb("barnabas.cli.consume", "Write a topic's records to standard output."),
    "log": Verb("barnabas.cli.log", "Look into the files of a data directory."),
    "doctor": Verb("barnabas.cli.doctor", "Tell what this machine offers a broker, and what is missing."),
}


class Verbs(TyperGroup):
    """A group that knows its commands by name and one line of help, and imports the one that is called."""

    def __init__(self, **options: Any) -> None:
        placeholders = {name: TyperCommand(name, help=verb.help) for name, verb in VERBS.items()}
        super().__init__(**{**options, "commands": placeholders})

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None:
            command = typer.main.get_command(import_module(VERBS[name].module).app)
            command.name = name
        return name, command, rest


app = typer.Typer(cls=Verbs, rich_markup_mode=None, no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"barnabas {__version__}")
        raise typer.Exit


@app.callback()
def barnabas(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    """A distributed commit log that speaks Kafka's protocol and keeps Kafka's files."""


def main() -> None:
    """Run the command line: a failure is one line on standard error and exit code 1, a wrong usage exit code 2."""
    try:
        app(prog_name="barnabas")
    except (KafkaError, OSError) as error:
        _fail(error)


def _fail(error: Exception) -> NoReturn:
    print(f"barnabas: {error}", file=sys.stderr)
    sys.exit(1)
