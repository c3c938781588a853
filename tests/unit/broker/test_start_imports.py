"""A broker starts quickly because it imports nothing before it is ready that it does not need by then."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import os, signal, sys
from barnabas.broker.process import serve
from barnabas.core.broker_config import BrokerConfig

def on_ready(addresses):
    print(*sys.modules)
    os.kill(os.getpid(), signal.SIGTERM)

serve(BrokerConfig.load(("test", b""), {}, sys.argv[1:]), on_ready)
"""


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The modules of a broker that has just become ready, alone and with an empty data directory."""
    settings = [f"log.dir={tmp_path_factory.mktemp('data')}", "listeners=PLAINTEXT://127.0.0.1:0"]
    done = subprocess.run([sys.executable, "-c", _PROGRAM, *settings], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_broker_is_ready_without_heavy_packages(imported: set[str]) -> None:
    heavy = {
        "cryptography", "cython", "importlib.metadata", "kazoo", "multiprocessing", "numpy", "prometheus_client",
        "pyarrow", "pyspark", "re2", "rich", "typer", "unittest", "xml", "yaml",
    }  # fmt: skip
    assert heavy & imported == set()


def test_broker_is_ready_without_clients_and_commands(imported: set[str]) -> None:
    above = ("barnabas.cli", "barnabas.client", "barnabas.spark", "barnabas.sync", "barnabas.testing")
    assert [name for name in imported if name.startswith(above)] == []


def test_broker_is_ready_without_handlers_and_their_messages(imported: set[str]) -> None:
    """A handler is imported with the first request for it, and so are the requests that brokers send each other."""
    assert [name for name in imported if name.startswith("barnabas.broker.handlers.")] == []
    messages = {name.rpartition(".")[2] for name in imported if name.startswith("barnabas.wire.messages.")}
    assert messages <= {"k01_fetch", "k02_list_offsets", "k18_api_versions"}
