"""What is said of many seeds, which run in a few processes at once.

`BARNABAS_TEST_SEEDS=1000-1999` tries others than the first two hundred.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIRST, _, LAST = os.environ.get("BARNABAS_TEST_SEEDS", "0-199").partition("-")
SEEDS = range(int(FIRST), int(LAST or FIRST) + 1)

Judge = Callable[[int], tuple[str, list[str]]]
"""Gives the digest of a seed's history, and what is wrong with it."""

Verdicts = dict[int, Future[tuple[str, list[str]]]]


@contextmanager
def all_verdicts(judge: Judge) -> Iterator[Verdicts]:
    """What is said of every seed, as soon as it is known."""
    pool = ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn"))
    try:
        yield {seed: pool.submit(judge, seed) for seed in SEEDS}
    finally:
        pool.shutdown(cancel_futures=True)


def problems_of(module: str, seed: int, verdicts: Verdicts) -> str:
    """What is wrong with a seed, and how to see more of it; nothing if all is well."""
    _, problems = verdicts[seed].result()
    return "\n".join([f"`python -m {module} {seed}` shows its history:", *problems]) if problems else ""


def digests_elsewhere(module: str, seed: int) -> set[str]:
    """The digests of a seed in other processes, whose strings hash in other ways."""
    digests = set()
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", module, str(seed)],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        digests.add(done.stdout.rpartition("digest ")[2].strip())
    return digests
