"""The `barnabas` command.

A table names the verbs; each is one module with a typer `app`, imported only when it is called, so that
`barnabas --help` and the shell's completion stay quick.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
from typer._completion_classes import completion_init
from typer.core import TyperCommand, TyperGroup

from barnabas import __version__
from barnabas.cli import contexts
from barnabas.cli.names import context_names

_COMPLETE = "_BARNABAS_COMPLETE"
"""The variable by which a shell asks for words to complete, as `barnabas completion` has told it to."""
_GC_THRESHOLD = 50_000  # a command makes few cycles, and the modules that it imports none worth a search


class Verb(NamedTuple):
    module: str
    help: str


VERBS = {
    "up": Verb("barnabas.cli.up", "Start a broker, or several, on this machine, ready at once."),
    "broker": Verb("barnabas.cli.broker", "Start a broker from a configuration file."),
    "context": Verb("barnabas.cli.context", "Name clusters, and choose the one that commands speak to."),
    "cluster": Verb("barnabas.cli.cluster", "Describe a cluster, tell whether it is healthy, move replicas."),
    "topic": Verb("barnabas.cli.topic", "Create, list, describe, alter, delete and trim topics."),
    "config": Verb("barnabas.cli.config", "Show and change settings of topics and brokers."),
    "produce": Verb("barnabas.cli.produce", "Write lines of standard input to a topic."),
    "consume": Verb("barnabas.cli.consume", "Write a topic's records to standard output."),
    "group": Verb("barnabas.cli.group", "List, describe, reset and delete consumer groups."),
    "txn": Verb("barnabas.cli.txn", "Look at transactions and producers, and abort what hangs."),
    "spark": Verb("barnabas.cli.spark", "Pack the environment for the executors of a Spark cluster."),
    "pipeline": Verb("barnabas.cli.pipeline", "Move topics into tables, lakes and topics, exactly once."),
    "bench": Verb("barnabas.cli.bench", "Measure a cluster: records and bytes per second, latencies."),
    "log": Verb("barnabas.cli.log", "Look into the files of a data directory."),
    "doctor": Verb("barnabas.cli.doctor", "Tell what this machine offers a broker, and what is missing."),
    "completion": Verb("barnabas.cli.completion", "Let a shell complete words, topics and groups included."),
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


_EXAMPLES = """\b
Examples:
  barnabas up
  barnabas context add prod broker1:9092,broker2:9092
  barnabas --context prod topic list -o json
  barnabas topic create --help
"""

app = typer.Typer(
    cls=Verbs,
    epilog=_EXAMPLES,
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"barnabas {__version__}")
        raise typer.Exit


def _choose_context(ctx: typer.Context, name: str | None) -> str | None:
    """Here and not in the command, which does not run while a shell completes words."""
    if name is not None:
        os.environ[contexts.VARIABLE] = name
        source = ctx.get_parameter_source("context")
        if source is not None and source.name == "COMMANDLINE":
            os.environ.pop(contexts.BOOTSTRAP_VARIABLE, None)  # what is typed counts more than any variable
    return name


@app.callback()
def barnabas(
    context: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            envvar=contexts.VARIABLE,
            callback=_choose_context,
            autocompletion=context_names,
            show_default="the one in use",
            help="The cluster to speak to.",
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A distributed commit log that speaks Kafka's protocol and keeps Kafka's files."""


def main() -> None:
    """Run the command line: a failure is one line on standard error and exit code 1, a wrong usage exit code 2."""
    gc.set_threshold(_GC_THRESHOLD)
    if _COMPLETE in os.environ:
        completion_init()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # as JSON demands, whatever the locale says
    try:
        app(prog_name="barnabas")
    except Exception as error:
        _fail(error)


def _fail(error: Exception) -> NoReturn:
    """What a user can do something about is one line; the rest is a bug, with its traceback."""
    from barnabas.cli.remedies import told
    from barnabas.core.errors import KafkaError

    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if not isinstance(error, KafkaError | OSError | contexts.ContextError):
        raise error
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    print(f"barnabas: {told(error) if isinstance(error, KafkaError) else error}{notes}", file=sys.stderr)
    sys.exit(1)
