"""Which Python Spark's workers get where the user has chosen none."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.spark import worker_python
from barnabas.spark.worker_python import VARIABLE


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH whose python3 is of another environment."""
    other = tmp_path / "python3"
    other.symlink_to(os.path.realpath(sys.executable))
    monkeypatch.setenv("PATH", str(tmp_path))
    return other


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.mark.usefixtures("elsewhere")
def test_worker_python_is_the_running_one_if_the_path_has_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")  # so that it is removed again at the end
    del os.environ[VARIABLE]
    worker_python.choose()
    assert os.environ[VARIABLE] == sys.executable


@pytest.mark.usefixtures("elsewhere")
def test_worker_python_that_the_user_has_chosen_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "./environment/bin/python")
    worker_python.choose()
    assert os.environ[VARIABLE] == "./environment/bin/python"


def test_worker_python_is_left_to_spark_in_an_activated_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    activated = tmp_path / "bin"
    activated.mkdir()
    for name in ("python", "python3"):
        (activated / name).symlink_to(os.path.realpath(sys.executable))
    monkeypatch.setenv("PATH", str(activated))
    monkeypatch.setattr(sys, "executable", str(activated / "python"))
    worker_python.choose()
    assert VARIABLE not in os.environ


@pytest.mark.parametrize(
    ("started_with", "chosen", "used"),
    [
        ("python3", "/venv/bin/python", "/venv/bin/python"),
        ("python3", None, "python3"),
        ("/opt/python", "/venv/bin/python", "/opt/python"),
    ],
)
def test_a_running_context_takes_the_choice_unless_it_has_one(
    monkeypatch: pytest.MonkeyPatch, started_with: str, chosen: str | None, used: str
) -> None:
    if chosen is not None:
        monkeypatch.setenv(VARIABLE, chosen)
    context: Any = SimpleNamespace(pythonExec=started_with)
    worker_python.adopt(context)
    assert context.pythonExec == used
