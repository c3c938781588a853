"""Options that several verbs share."""

from __future__ import annotations

from typing import Annotated

import typer

from barnabas.cli.output import Output

OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print results.")]

BootstrapOption = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT[,...]",
        envvar="BARNABAS_BOOTSTRAP_SERVER",
        help="Brokers to ask first.",
    ),
]
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting by Kafka's name; may be repeated."),
]


def parse_settings(settings: list[str] | None) -> dict[str, str]:
    """`key=value` pairs as a mapping; a wrong one is an error of usage."""
    parsed = {}
    for setting in settings or ():
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"{setting!r} is not of the form key=value")
        parsed[key.strip()] = value
    return parsed
