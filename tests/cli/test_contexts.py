"""Contexts: clusters by name, kept in the user's own file."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests import peers
from tests.cli.commands import assert_one_line, run_barnabas, succeed
from tests.peers import Broker


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config" / "barnabas" / "contexts.json"


def test_commands_speak_to_the_cluster_of_the_context_in_use(broker: Broker, topic_name: str) -> None:
    nobody = f"127.0.0.1:{peers.free_port()}"
    assert succeed("context", "add", "here", broker.address) == f"added context here: {broker.address} (in use)\n"
    succeed("context", "add", "nowhere", nobody)
    succeed("topic", "create", topic_name)
    assert topic_name in succeed("topic", "list")

    succeed("context", "use", "nowhere")
    where = (f"cannot reach broker at {nobody}", "is it running?", "the cluster of context 'nowhere'")
    assert_one_line(run_barnabas("topic", "list"), *where)


def test_the_shell_and_the_command_line_override_the_context_in_use(broker: Broker) -> None:
    succeed("context", "add", "nowhere", f"127.0.0.1:{peers.free_port()}")
    succeed("context", "add", "here", broker.address)
    assert run_barnabas("cluster", "describe").returncode == 1
    succeed("cluster", "describe", environment={"BARNABAS_CONTEXT": "here"})
    succeed("--context", "here", "cluster", "describe", environment={"BARNABAS_CONTEXT": "nowhere"})
    succeed("cluster", "describe", "-b", broker.address, environment={"BARNABAS_CONTEXT": "no-such-context"})
    nobody = {"BARNABAS_BOOTSTRAP_SERVER": f"127.0.0.1:{peers.free_port()}"}
    assert run_barnabas("cluster", "describe", environment={"BARNABAS_CONTEXT": "here", **nobody}).returncode == 1
    succeed("--context", "here", "cluster", "describe", environment=nobody)


def test_contexts_are_listed_replaced_and_removed(file: Path) -> None:
    succeed("context", "add", "prod", "one:9092,two:9092", "--set", "request_timeout_ms=5000")
    succeed("context", "add", "dev", "localhost")
    assert json.loads(succeed("context", "list", "-o", "json")) == [
        {"context": "dev", "bootstrap_servers": "localhost", "options": {}, "in_use": False},
        {
            "context": "prod",
            "bootstrap_servers": "one:9092,two:9092",
            "options": {"request_timeout_ms": 5000},
            "in_use": True,
        },
    ]
    assert file.stat().st_mode & 0o777 == 0o600
    taken = run_barnabas("context", "add", "dev", "other:9092")
    assert_one_line(taken, "context 'dev' is localhost already", "--replace")
    succeed("context", "add", "dev", "other:9092", "--replace")
    succeed("context", "remove", "prod")
    assert succeed("context", "list").split() == [
        "CONTEXT",
        "BOOTSTRAP",
        "SERVERS",
        "OPTIONS",
        "IN",
        "USE",
        "dev",
        "other:9092",
        "-",
        "no",
    ]


def test_the_options_of_a_context_reach_the_client() -> None:
    """A broker that takes connections and never answers: only the context can say how long to wait for it."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = "{}:{}".format(*silent.getsockname())
        succeed(
            "context", "add", "silent", address, "--set", "request_timeout_ms=200", "--set", "connect_timeout_ms=200"
        )
        assert_one_line(run_barnabas("topic", "list", timeout=30), address)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["prod", "host:no-port"], "'host:no-port' is not an address of the form host:port"),
        (["prod", "host", "--set", "request.timeout=1"], "did you mean 'request_timeout_ms'?"),
        (["prod", "host", "--set", "request_timeout_ms=soon"], "request_timeout_ms=soon is not a number"),
    ],
)
def test_a_wrong_address_or_option_is_an_error_of_usage(arguments: list[str], told: str, file: Path) -> None:
    done = run_barnabas("context", "add", *arguments)
    assert done.returncode == 2
    assert told in done.stderr
    assert not file.exists()


def test_a_context_that_is_not_there_is_told_with_those_that_are() -> None:
    succeed("context", "add", "prod", "localhost")
    told = ("there is no context 'prud'", "there are prod", "barnabas context add prud HOST:PORT")
    assert_one_line(run_barnabas("topic", "list", environment={"BARNABAS_CONTEXT": "prud"}), *told)
    assert_one_line(run_barnabas("context", "use", "prud"), *told)
    assert_one_line(run_barnabas("context", "remove", "prud"), *told)


@pytest.mark.parametrize("content", ["{", "[]", '{"current": "a", "contexts": {"a": {"host": 1}}}'])
def test_a_damaged_file_is_named(file: Path, content: str) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(content)
    assert_one_line(run_barnabas("topic", "list"), str(file), "is damaged")
    assert file.read_text() == content


def test_an_option_that_the_file_has_wrong_is_told_with_its_context(file: Path) -> None:
    file.parent.mkdir(parents=True)
    context = {"bootstrap_servers": "localhost", "options": {"timeout": 1}}
    file.write_text(json.dumps({"current": "a", "contexts": {"a": context}}))
    assert_one_line(run_barnabas("topic", "list"), "context 'a'", "has no option 'timeout'", "--replace")
