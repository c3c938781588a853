"""The command against the broker of all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import Ok, Run, run_on, succeed_on
from tests.peers import Broker


@pytest.fixture(autouse=True)
def own_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The contexts of whoever runs the tests are not their business."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("BARNABAS_CONTEXT", raising=False)
    monkeypatch.delenv("BARNABAS_BOOTSTRAP_SERVER", raising=False)


@pytest.fixture
def run(broker: Broker) -> Run:
    return run_on(broker.address)


@pytest.fixture
def ok(broker: Broker) -> Ok:
    return succeed_on(broker.address)
