"""Completion as the shells do it, with the cluster's own names."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import peers
from tests.cli.commands import Ok, succeed
from tests.peers import Broker, barnabas_command, eventually

Complete = Callable[[str], list[str]]

# Each is run with a line to complete as its last argument, and prints what the shell would offer.
_BASH = """
source <(barnabas completion bash)
COMP_LINE="$1" COMP_POINT=${#1}
_barnabas barnabas
printf '%s\\n' "${COMPREPLY[@]}"
"""
_ZSH = """
compdef() {}
compadd() { shift; print -l -- $@ }
_files() { print -l -- files }
source <(barnabas completion zsh)
words=("${(@s: :)1}") CURRENT=${#words}
_barnabas
"""
_FISH = "barnabas completion fish | source; complete --do-complete $argv[1]"
_COMMANDS = {
    "bash": ["bash", "--norc", "-c", _BASH, "bash"],
    "zsh": ["zsh", "-f", "-c", _ZSH, "zsh"],
    "fish": ["fish", "--no-config", "-c", _FISH],
}


@pytest.fixture(params=_COMMANDS)
def complete(request: pytest.FixtureRequest, tmp_path: Path) -> Complete:
    """What a shell offers for a line."""
    program = tmp_path / "bin" / "barnabas"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {" ".join(barnabas_command())} "$@"\n')
    program.chmod(0o755)
    name, *arguments = _COMMANDS[request.param]
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}

    def ask(line: str) -> list[str]:
        command = [peers.shell(name), *arguments, line]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)
        assert done.stderr == ""
        return sorted(word.partition("\t")[0] for word in done.stdout.split("\n") if word)

    return ask


def test_verbs_and_topics_are_completed(broker: Broker, ok: Ok, topic_name: str, complete: Complete) -> None:
    ok("topic", "create", topic_name, "-p", "1")
    assert complete("barnabas con") == ["config", "consume", "context"]
    line = f"barnabas topic describe -b {broker.address} {topic_name[:-2]}"
    eventually(lambda: complete(line), [topic_name])  # a busy machine may take longer than a shell waits


def ask_for_words(line: str, environment: dict[str, str] | None = None) -> list[str]:
    words = line.split(" ")
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_BARNABAS_COMPLETE": "complete_bash"}
    return succeed(environment={**asked, **(environment or {})}).split()


def test_groups_contexts_and_brokers_are_completed(broker: Broker, ok: Ok, topic_name: str) -> None:
    ok("topic", "create", topic_name, "-p", "1")
    ok("group", "reset", topic_name, "--to", "latest", "--topic", topic_name, "--execute")
    succeed("context", "add", "here", broker.address)
    assert ask_for_words("barnabas context use h") == ["here"]
    eventually(lambda: ask_for_words(f"barnabas group describe {topic_name[:-2]}"), [topic_name])
    eventually(lambda: ask_for_words(f"barnabas --context here consume x --group {topic_name[:-2]}"), [topic_name])
    eventually(lambda: "all" in ask_for_words("barnabas config describe broker "), True)


def test_a_cluster_that_does_not_answer_offers_no_names_and_keeps_nobody_waiting() -> None:
    started = time.monotonic()
    with socket.create_server((peers.HOST, 0)) as silent:
        address = "{}:{}".format(*silent.getsockname())
        assert ask_for_words("barnabas topic describe ", {"BARNABAS_BOOTSTRAP_SERVER": address}) == []
    assert ask_for_words("barnabas topic describe ", {"BARNABAS_CONTEXT": "no-such-context"}) == []
    assert time.monotonic() - started < 30
