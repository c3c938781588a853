"""Two hundred seeds of three brokers that crash, lose power, and lose each other, their clients and the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.cluster import brokers
from barnabas.cluster.election import PartitionChanges, broker_goes
from barnabas.cluster.isr import InSync
from barnabas.cluster.partition import Partition
from tests.simulation.three_brokers import judge
from tests.simulation.verdicts import SEEDS, Verdicts, all_verdicts, digests_elsewhere, problems_of

MODULE = "tests.simulation.three_brokers"
ENOUGH_SEEDS = 40  # to find a planted bug


@pytest.fixture(scope="module")
def verdicts() -> Iterator[Verdicts]:
    with all_verdicts(judge) as verdicts:
        yield verdicts


@pytest.mark.timeout(900)  # for all the seeds before it, on a busy machine
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_that_was_promised_is_lost(seed: int, verdicts: Verdicts) -> None:
    problems = problems_of(MODULE, seed, verdicts)
    assert not problems, problems


@pytest.mark.timeout(900)  # for all the seeds before it, on a busy machine
@pytest.mark.parametrize("seed", SEEDS[:2])
def test_a_seed_has_one_history(seed: int, verdicts: Verdicts) -> None:
    """Wherever it is run, after whatever else, and however the strings of that process hash."""
    assert digests_elsewhere(MODULE, seed) == {verdicts[seed].result()[0]}


def trusting(*arguments: Any, is_clean: bool) -> PartitionChanges:
    return broker_goes(*arguments, is_clean=True)


@pytest.mark.parametrize(
    ("owner", "name", "bug", "symptom"),
    [
        pytest.param(InSync, "least_end", lambda _, end: end, "lost", id="a watermark that waits for nobody"),
        pytest.param(Partition, "divergence", lambda *_: None, "diverge", id="a follower that keeps all it has"),
        pytest.param(brokers, "broker_goes", trusting, "lost", id="a power cut that passes for a crash"),
    ],
)
def test_a_planted_bug_is_found(
    owner: object, name: str, bug: Callable[..., object], symptom: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, bug)
    for seed in range(ENOUGH_SEEDS):
        _, problems = judge(seed)
        if any(symptom in problem for problem in problems):
            return
    pytest.fail(f"{ENOUGH_SEEDS} seeds did not show it")
