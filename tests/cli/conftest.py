"""The command against the broker of all tests, or against Barnabas and Apache Kafka in turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import Ok, Run, run_barnabas, succeed
from tests.peers import Broker


@pytest.fixture(autouse=True)
def own_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The contexts of whoever runs the tests are not their business."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("BARNABAS_CONTEXT", raising=False)
    monkeypatch.delenv("BARNABAS_BOOTSTRAP_SERVER", raising=False)


@pytest.fixture
def run(broker: Broker) -> Run:
    """Runs a verb against the broker."""
    environment = {"BARNABAS_BOOTSTRAP_SERVER": broker.address}
    return lambda *arguments, input="": run_barnabas(*arguments, input=input, environment=environment)


@pytest.fixture
def ok(broker: Broker) -> Ok:
    """Runs a verb that must succeed, and gives what it printed."""
    environment = {"BARNABAS_BOOTSTRAP_SERVER": broker.address}
    return lambda *arguments, input="": succeed(*arguments, input=input, environment=environment)
