"""Every command explains itself with examples, and the examples are right."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer

from barnabas.cli.main import VERBS
from tests.peers import ROOT


def commands() -> Iterator[tuple[str, Any]]:
    """Each command that does something, by its words."""
    for verb, (module, _) in VERBS.items():
        command = typer.main.get_command(import_module(module).app)
        below = getattr(command, "commands", None)
        if below is None:
            yield f"barnabas {verb}", command
        else:
            yield from ((f"barnabas {verb} {name}", each) for name, each in below.items())


COMMANDS = dict(commands())


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_has_examples_that_it_would_take(words: str) -> None:
    command = COMMANDS[words]
    title, *lines = command.epilog.removeprefix("\b\n").split("\n")
    assert title == "Examples:"
    assert lines
    for line in lines:
        assert words in line
        assert_taken(line)


def assert_taken(line: str) -> list[str]:
    """Every command of ours in a line for a shell has options that it knows; which commands these are."""
    taken = []
    for part in re.split(r" \|\|? | [<>] ", re.sub(r"barnabas --context \w+", "barnabas", line)):
        found = next((other for other in COMMANDS if f"{part.strip()} ".startswith(f"{other} ")), None)
        if found is not None:
            arguments = shlex.split(part.strip().removeprefix(found))
            COMMANDS[found].make_parser(typer.Context(COMMANDS[found])).parse_args(arguments)
            taken.append(found)
    return taken


def test_the_manual_shows_every_command_as_it_is() -> None:
    lines = Path(ROOT, "docs", "cli.md").read_text().splitlines()
    shown = {command for line in lines if line.startswith("$ ") for command in assert_taken(line.removeprefix("$ "))}
    assert COMMANDS.keys() == shown


@pytest.mark.parametrize("words", COMMANDS)
def test_what_prints_data_prints_it_for_programs_too(words: str) -> None:
    options = {option for parameter in COMMANDS[words].params for option in parameter.opts}
    assert ("-o" in options) == (words != "barnabas completion")
    assert COMMANDS[words].help


def test_the_line_of_a_verb_fits_into_a_terminal() -> None:
    assert all(len(verb.help) <= 64 for verb in VERBS.values())
