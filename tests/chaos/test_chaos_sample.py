"""A sample of `make chaos`: a minute of what a seed brings, with all clients at work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos import namespaces
from tests.peers import absent

ROOT = Path(__file__).resolve().parents[2]
SEED = os.environ.get("BARNABAS_TEST_CHAOS_SEED", "23")
MINUTES = "0.8"
WITHIN_S = 600
QUIETLY = ("--rate", "100", "--longest", "5", "--unrecorded")


@pytest.mark.alone  # sessions and in-sync replicas count seconds
@pytest.mark.timeout(WITHIN_S + 30)
def test_no_anomaly_in_a_minute_of_chaos() -> None:
    """BARNABAS_TEST_CHAOS_SEED chooses another one."""
    if problem := namespaces.missing():
        absent(problem)
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--minutes", MINUTES, "--seed", SEED, *QUIETLY],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
