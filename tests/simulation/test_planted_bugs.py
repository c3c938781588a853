"""Bugs that are planted are found: first by the seed that is known for it, else by others that are looked through.

Where a change of the code or of the simulation has made that seed another one, `python -m tests.simulation 1000 --plant
BUG` finds the next; so it does for a bug for which no seed is known yet.
"""

from __future__ import annotations

import pytest

from tests.simulation.planted_bugs import BUGS
from tests.simulation.sweep import judge

ENOUGH_SEEDS = 12
SAMPLE = {"a-retry-taken-for-new", "a-leader-epoch-reused", "a-coordinator-that-is-named-too-early"}
"""One for each scenario; the others are looked for in the proof."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(bug, marks=() if bug in SAMPLE else pytest.mark.proof)
        for bug, planted in BUGS.items()
        if planted.seed is not None
    ],
)
def test_a_planted_bug_is_found(bug: str) -> None:
    wanted = BUGS[bug]
    assert wanted.seed is not None
    for seed in (wanted.seed, *range(ENOUGH_SEEDS)):
        if wanted.is_shown_by(judge((wanted.scenario, seed), bug).problems):
            return
    pytest.fail(f"no longer by seed {wanted.seed}; look again: python -m tests.simulation 1000 --plant {bug}")
