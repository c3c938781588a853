"""Options that several verbs share."""

from __future__ import annotations

from typing import Annotated

import typer

from barnabas.cli.contexts import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP
from barnabas.cli.names import group_names, topic_names
from barnabas.cli.output import Output

OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print results.")]

BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT[,...]",
        envvar=BOOTSTRAP_VARIABLE,
        show_default=f"the context's, or {DEFAULT_BOOTSTRAP}",
        help="Brokers to ask first.",
    ),
]

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=topic_names)]
TopicsArgument = Annotated[list[str], typer.Argument(metavar="TOPIC...", autocompletion=topic_names)]
GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", autocompletion=group_names)]

SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting by Kafka's name; may be repeated."),
]


def examples(*lines: str) -> str:
    """The end of a command's help; the mark keeps the lines as they are."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def parse_settings(settings: list[str] | None) -> dict[str, str]:
    """`key=value` pairs as a mapping; a wrong one is an error of usage."""
    parsed = {}
    for setting in settings or ():
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"{setting!r} is not of the form key=value")
        parsed[key.strip()] = value
    return parsed
