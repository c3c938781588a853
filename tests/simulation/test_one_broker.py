"""Two hundred seeds of one broker that crashes, loses power and loses connections under load."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from barnabas.cluster.partition import Partition
from barnabas.storage.producer_state import ProducerStates
from tests.simulation.one_broker import judge
from tests.simulation.simulated_disk import SimulatedFile
from tests.simulation.verdicts import SEEDS, Verdicts, all_verdicts, digests_elsewhere, problems_of

MODULE = "tests.simulation.one_broker"
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
@pytest.mark.parametrize("seed", SEEDS[:4])
def test_a_seed_has_one_history(seed: int, verdicts: Verdicts) -> None:
    """Wherever it is run, after whatever else, and however the strings of that process hash."""
    assert digests_elsewhere(MODULE, seed) == {verdicts[seed].result()[0]}


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
