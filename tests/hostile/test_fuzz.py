"""Mutated requests of every API and version do a broker no harm.

`BARNABAS_TEST_FUZZ_SEED` repeats a run that failed; its seed is in the output. The proof sends two hundred thousand,
`make fuzz` ten million.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.hostile.attacks import Size, carry_out


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("BARNABAS_TEST_FUZZ_SEED", "0")) or int.from_bytes(os.urandom(4), "big")
    print(f"BARNABAS_TEST_FUZZ_SEED={chosen}")
    return chosen


@pytest.mark.timeout(400)
@pytest.mark.parametrize("frames", [10_000, pytest.param(200_000, marks=pytest.mark.proof)])
def test_mutated_requests_do_a_broker_no_harm(tmp_path: Path, seed: int, frames: int) -> None:
    size = Size(frames=frames, calm_seconds=1, rest_seconds=0, p99_floor_ms=5000, niceness=0)
    figures = carry_out("fuzz", tmp_path, size, seed)
    print(figures)
    assert figures.problems == []


@pytest.mark.proof
def test_mutated_requests_hold_up_no_healthy_client(tmp_path: Path, seed: int) -> None:
    figures = carry_out("fuzz", tmp_path, Size(frames=20_000, calm_seconds=2, p99_floor_ms=100), seed)
    print(figures)
    assert figures.problems == []
