"""Two hundred thousand mutated requests of every API and version, and the broker is none the worse for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from barnabas.broker.handlers import SERVED
from barnabas.wire.registry import api
from tests.hostile.fuzz import Driver, Fuzzer, prepare
from tests.hostile.victim import attacked

REQUESTS = 200_000


@pytest.mark.timeout(400)
def test_mutated_requests_cause_no_unhandled_error(tmp_path: Path) -> None:
    """`BARNABAS_TEST_FUZZ_SEED` repeats a run that failed; its seed is in the output."""
    seed = int(os.environ.get("BARNABAS_TEST_FUZZ_SEED", "0")) or int.from_bytes(os.urandom(4), "big")
    print(f"BARNABAS_TEST_FUZZ_SEED={seed}")
    with attacked(tmp_path) as victim:
        before = victim.resident_mib()
        outcome = Driver(victim.address, Fuzzer(seed, prepare(victim.address)).requests(REQUESTS)).run()
        print(outcome)
        assert outcome.answered == REQUESTS
        assert outcome.closed < REQUESTS * 0.6  # or what is tested is little more than the parser
        for key in SERVED:
            answered = victim.metric("barnabas_requests_total", api=api(key).name)
            assert answered > REQUESTS / 1000, f"{api(key).name} was answered {answered} times only"
        assert victim.resident_mib() < before + 100
