"""Two simulated hours, the seeds that once found a bug, and that a seed has one history.

`BARNABAS_TEST_SEED` is another first seed; `python -m tests.simulation` tries fresh ones, and many more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from tests.simulation.fault_plan import read, written
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.sweep import Tally, cases, command, judge, sweep

ROOT = Path(__file__).resolve().parents[2]
CORPUS = json.loads(Path(__file__).with_name("corpus.json").read_text())
HOURS = 2
FIRST_SEED = 1_794_841_258_000
BOTH_KINDS = [("three_brokers", 1), ("three_brokers", 2)]  # with our own clients, in a drawn order, and without


@pytest.mark.timeout(900)  # on a busy machine
def test_two_hours_have_no_anomaly() -> None:
    first = int(os.environ.get("BARNABAS_TEST_SEED", FIRST_SEED))
    tally = Tally()
    judgements = sweep(cases(count(first)))
    for judgement in judgements:
        tally.add(judgement)
        if tally.simulated_s >= HOURS * 3600:
            break
    judgements.close()
    print(f"from seed {first}: {tally}")
    assert not tally.wrong, f"BARNABAS_TEST_SEED={first}\n" + "\n".join(map(str, tally.wrong))


@pytest.mark.parametrize("once", CORPUS, ids=lambda once: f"{once['scenario']}-{once['seed']}")
def test_what_once_failed_does_not_fail_again(once: dict[str, str]) -> None:
    judgement = judge((once["scenario"], int(once["seed"])))
    assert not judgement.problems, judgement


@pytest.mark.timeout(300)  # on a busy machine
@pytest.mark.parametrize(("scenario", "seed"), [("one_broker", 0), ("consumer_group", 2), *BOTH_KINDS])
def test_a_seed_has_one_history(scenario: str, seed: int) -> None:
    """Wherever it is run, after whatever else, however the strings of that process hash, and by its written plan."""
    verdict = SCENARIOS[scenario](seed, None)
    assert SCENARIOS[scenario](seed, read(written(verdict.plan))).history.digest == verdict.history.digest
    assert {_digest_elsewhere(scenario, seed, hash_seed) for hash_seed in ("1", "2")} == {verdict.history.digest}


def _digest_elsewhere(scenario: str, seed: int, hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, *command(scenario, seed).split()[1:]],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout.rpartition("digest ")[2].strip()
