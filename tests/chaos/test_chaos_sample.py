"""A sample of `make chaos`: what a seed brings to either kind of cluster in a minute, with all clients at work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos import namespaces
from tests.peers import absent

ROOT = Path(__file__).resolve().parents[2]
SEED = os.environ.get("BARNABAS_TEST_CHAOS_SEED", "5366")
MINUTES = "1"
WITHIN_S = 600
QUIETLY = ("--rate", "100", "--longest", "5", "--unrecorded")


@pytest.mark.proof
@pytest.mark.timeout(WITHIN_S + 30)
@pytest.mark.parametrize("number", [0, 1], ids=["three-brokers-on-a-file", "five-brokers-on-zookeeper"])
def test_no_anomaly_in_a_minute_of_chaos(number: int) -> None:
    """BARNABAS_TEST_CHAOS_SEED chooses another one."""
    if problem := namespaces.missing():
        absent(problem)
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--minutes", MINUTES, "--seed", SEED, "--round", str(number), *QUIETLY],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
