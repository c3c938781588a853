"""Which codec runs, and that a compiled one that does not fit its sources never does."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.records import codec, column_codec, engine
from tests.unit.records.conftest import use_engine


def test_the_compiled_codec_runs_if_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    use_engine("compiled", monkeypatch)
    choice = engine.choose(pure=False)
    assert choice.codec.__name__ == engine.COMPILED_MODULE
    assert choice.column_codec is choice.compaction_codec is choice.codec


def test_the_environment_can_force_plain_python() -> None:
    script = "from barnabas.records import engine; print(engine.codec.__name__, engine.COMPILED, engine.describe())"
    environment = {**os.environ, "BARNABAS_PURE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.split(maxsplit=2) == [
        "barnabas.records.codec",
        "False",
        "uncompiled record codec: BARNABAS_PURE is set\n",
    ]


def test_a_codec_compiled_from_other_sources_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stale = SimpleNamespace(SOURCE_DIGEST="of an older codec.py", __file__="_codec_c.so")
    monkeypatch.setattr(importlib, "import_module", lambda name: stale)
    choice = engine.choose(pure=False)
    assert (choice.codec, choice.column_codec, choice.compiled) == (codec, column_codec, False)
    assert "built from other sources; rebuild it with" in choice.reason


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ModuleNotFoundError("none"), "is not built; build it with"),
        (ImportError("wrong ABI"), "does not load: wrong ABI"),
    ],
)
def test_without_a_compiled_codec_the_sources_run(
    monkeypatch: pytest.MonkeyPatch, error: ImportError, reason: str
) -> None:
    def fail(name: str) -> Any:
        raise error

    monkeypatch.setattr(importlib, "import_module", fail)
    choice = engine.choose(pure=False)
    assert choice.codec is codec
    assert reason in choice.reason


def test_the_sources_run_without_cython() -> None:
    script = (
        "import sys; sys.modules['cython'] = sys.modules['Cython'] = None\n"
        "from barnabas.records import codec, column_codec\n"
        "print(codec.cython.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "barnabas.records.uncompiled\n"
