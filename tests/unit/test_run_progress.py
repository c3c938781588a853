"""What a run of tests prints: failures at once, what a machine lacks, and the test in which a process died."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.peers import ROOT

CONFTEST = """
from tests.progress import Progress

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(config), "progress")
"""
TESTS = """
import os, signal, pytest

def test_passes():
    pass

def test_fails():
    print("what it printed")
    assert "this" == "that"

def test_lacks_something():
    pytest.skip("no Go: run `make peers`")

@pytest.fixture
def broken():
    raise ValueError("broken fixture")

def test_without_fixture(broken):
    pass
"""
DEADLY = """
import os, signal

def test_dies():
    os.kill(os.getpid(), signal.SIGKILL)
"""


def run(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (directory / "conftest.py").write_text(CONFTEST)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", directory, directory, *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_failures_are_shown_at_once_and_named_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(TESTS)
    done = run(tmp_path)
    output = done.stdout
    assert done.returncode == 1
    assert output.count("what it printed") == 2  # the source, and what was captured
    assert output.count('assert "this" == "that"') == 1
    assert output.index("what it printed") < output.index("short test summary")
    assert re.search(r"^FAILED \S*test_sample.py::test_fails", output, re.MULTILINE)
    assert re.search(r"^ERROR \S*test_sample.py::test_without_fixture", output, re.MULTILINE)
    assert "1 skipped: no Go: run `make peers`" in output
    assert "1 failed, 1 passed, 1 skipped, 1 error" in output


def test_process_that_dies_fails_the_run_and_is_named_in_the_last_line(tmp_path: Path) -> None:
    (tmp_path / "test_deadly.py").write_text(DEADLY)
    done = run(tmp_path, "-n", "1")
    assert done.returncode != 0
    assert "1 failed" in done.stdout
    assert done.stdout.splitlines()[-1] == "FAILED: the test process died in test_deadly.py::test_dies"
