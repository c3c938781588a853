"""Known seeds, and those that once found a bug, have no anomaly; a seed has one history, and does not take long.

The proof has two simulated hours from a fresh seed and two hundred known seeds. `BARNABAS_TEST_SEED` repeats the two
hours from the seed that they printed; `python -m tests.simulation` runs more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest

from tests.simulation.fault_plan import read, written
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.sweep import Tally, cases, command, fresh_seed, judge, sweep
from tests.yardstick import slowness

ROOT = Path(__file__).resolve().parents[2]
CORPUS = json.loads(Path(__file__).with_name("corpus.json").read_text())
HOURS = 2
KNOWN_SEEDS = 20
BOTH_KINDS = [("three_brokers", 1), ("three_brokers", 2)]  # with our own clients, in a drawn order, and without
PROTOCOLS = [("consumer_group", 0), ("consumer_group", 1), ("consumer_group", 2)]  # with three assignors


@pytest.mark.proof
@pytest.mark.timeout(900)  # on a busy machine
def test_two_hours_have_no_anomaly() -> None:
    first = int(os.environ.get("BARNABAS_TEST_SEED") or fresh_seed())
    print(f"BARNABAS_TEST_SEED={first}")
    tally = Tally()
    judgements = sweep(cases(count(first)))
    for judgement in judgements:
        tally.add(judgement)
        if tally.simulated_s >= HOURS * 3600:
            break
    judgements.close()
    print(tally)
    assert not tally.wrong, f"BARNABAS_TEST_SEED={first}\n" + "\n".join(map(str, tally.wrong))


@pytest.mark.parametrize("seed", range(KNOWN_SEEDS))
def test_known_seeds_of_three_brokers_have_no_anomaly(seed: int) -> None:
    judgement = judge(("three_brokers", seed))
    assert not judgement.problems, judgement


@pytest.mark.proof
@pytest.mark.timeout(1200)  # on a busy machine
def test_two_hundred_seeds_of_three_brokers_have_no_anomaly() -> None:
    """The same ones every time, so that a change is to blame for what it breaks."""
    wrong = [judgement for judgement in sweep(cases(range(200), ["three_brokers"])) if judgement.problems]
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("once", CORPUS, ids=lambda once: f"{once['scenario']}-{once['seed']}")
def test_what_once_failed_does_not_fail_again(once: dict[str, str]) -> None:
    judgement = judge((once["scenario"], int(once["seed"])))
    assert not judgement.problems, judgement


@pytest.mark.timeout(300)  # on a busy machine
@pytest.mark.parametrize(
    ("scenario", "seed"),
    [("one_broker", 0), *(pytest.param(*case, marks=pytest.mark.proof) for case in (*PROTOCOLS, *BOTH_KINDS))],
)
def test_a_seed_has_one_history(scenario: str, seed: int) -> None:
    """Wherever it is run, after whatever else, however the strings of that process hash, and by its written plan."""
    verdict = SCENARIOS[scenario](seed, None)
    assert SCENARIOS[scenario](seed, read(written(verdict.plan))).history.digest == verdict.history.digest
    assert {_digest_elsewhere(scenario, seed, hash_seed) for hash_seed in ("1", "2")} == {verdict.history.digest}


@pytest.mark.proof
def test_a_second_takes_less_than_a_hundredth_of_one() -> None:
    """By the processor's time, which other work on the machine hardly changes; these seeds take half of that."""
    before = time.process_time()
    simulated_s = sum(judge(case).seconds for case in cases(range(6)))
    assert time.process_time() - before < simulated_s / 100 * slowness()


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
