"""Two hundred seeds of one broker that crashes, loses power and loses connections under load.

The seeds run in a few processes at once. One that fails tells how to run it again, and
`BARNABAS_TEST_SEEDS=1000-1999` tries others.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

import pytest

from barnabas.cluster.partition import Partition
from barnabas.storage.producer_state import ProducerStates
from tests.simulation.one_broker import judge
from tests.simulation.simulated_disk import SimulatedFile

ROOT = Path(__file__).resolve().parents[2]
FIRST, _, LAST = os.environ.get("BARNABAS_TEST_SEEDS", "0-199").partition("-")
SEEDS = range(int(FIRST), int(LAST or FIRST) + 1)
ENOUGH_SEEDS = 40  # to find a planted bug

Verdicts = dict[int, Future[tuple[str, list[str]]]]


@pytest.fixture(scope="module")
def verdicts() -> Iterator[Verdicts]:
    """What is said of every seed, as soon as it is known."""
    pool = ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn"))
    yield {seed: pool.submit(judge, seed) for seed in SEEDS}
    pool.shutdown(cancel_futures=True)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_that_was_promised_is_lost(seed: int, verdicts: Verdicts) -> None:
    _, problems = verdicts[seed].result()
    assert not problems, f"`python -m tests.simulation.one_broker {seed}` shows its history:\n" + "\n".join(problems)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS[:4])
def test_a_seed_has_one_history(seed: int, verdicts: Verdicts) -> None:
    """Wherever it is run, after whatever else, and however the strings of that process hash."""
    digests = {verdicts[seed].result()[0]}
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation.one_broker", str(seed)],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        digests.add(done.stdout.rpartition("digest ")[2].strip())
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("owner", "name", "bug", "symptom"),
    [
        pytest.param(SimulatedFile, "sync", lambda file: None, "synced", id="a disk that only says it has synced"),
        pytest.param(
            Partition,
            "is_acknowledged",
            lambda *_: True,
            "synced",
            id="an acknowledgement before its records are synced",
        ),
        pytest.param(ProducerStates, "check_batch", lambda *_: None, "twice", id="a retry that is taken for new"),
    ],
)
def test_a_planted_bug_is_found(
    owner: type, name: str, bug: Callable[..., object], symptom: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, bug)
    for seed in range(ENOUGH_SEEDS):
        _, problems = judge(seed)
        if any(symptom in problem for problem in problems):
            return
    pytest.fail(f"{ENOUGH_SEEDS} seeds did not show it")
