"""What an attack does to a broker and to its healthy client: measured during it and in times of calm, and judged."""

from __future__ import annotations

import threading
import time
from bisect import bisect
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psutil

from tests.hostile.victim import Victim
from tests.hostile.witness import Witness, percentile
from tests.peers import eventually

MOST_TIMES_RESIDENT = 1.5
MOST_TIMES_P99 = 2.0
_SAMPLE_SECONDS = 0.1
_FIRST_RECORDS = 5  # they find out who leads, connect, make things warm
_SETTLED_SECONDS = 0.5  # after which nothing of an attack that rests is left, nor of what it had done in the background


@dataclass(slots=True)
class Figures:
    """One line of the table.

    `most_mib` is how much the broker may grow, where that is not a share of its start; a p99 below `p99_floor_ms` is
    good enough, whatever it was before. `cold_mib` was resident when the broker had served nobody; `resident_mib`, by
    which it is judged, when what the attack needs was prepared and the healthy client was at work. `p99_ms` is that of
    the times of calm.
    """

    attack: str
    work: str
    most_mib: float | None
    p99_floor_ms: float
    seconds: float = 0.0
    cold_mib: float = 0.0
    resident_mib: float = 0.0
    highest_mib: float = 0.0
    p99_ms: float = 0.0
    p99_during_ms: float = 0.0
    slowest_ms: float = 0.0
    records: int = 0
    problems: list[str] = field(default_factory=list)

    def judge(self) -> None:
        """Add what is not as it must be to the problems."""
        bound = self.resident_mib * MOST_TIMES_RESIDENT if self.most_mib is None else self.resident_mib + self.most_mib
        if self.highest_mib > bound:
            told = f"{self.highest_mib:.0f} MiB, from {self.resident_mib:.0f}: the most is {bound:.0f}"
            self.problems.append(f"the broker's resident memory was {told}")
        bound = max(MOST_TIMES_P99 * self.p99_ms, self.p99_floor_ms)
        if self.p99_during_ms > bound:
            told = f"{self.p99_during_ms:.1f} ms, from {self.p99_ms:.1f}: the most is {bound:.1f}"
            self.problems.append(f"the healthy client's p99 was {told}")


class Calm:
    """The times in which nothing is attacked: one before, and as many as the attack takes."""

    def __init__(self) -> None:
        self._spans: list[tuple[float, float]] = []

    def add(self, began: float, ended: float) -> None:
        self._spans.append((began, ended))

    def rest(self, seconds: float) -> None:
        began = time.monotonic() + _SETTLED_SECONDS
        time.sleep(seconds)
        self.add(began, time.monotonic())

    def has(self, sent: float, seconds: float) -> bool:
        """Whether all that happened to a record was then."""
        before = bisect(self._spans, (sent, sent))
        began, ended = self._spans[max(0, before - 1)]
        return began <= sent and sent + seconds <= ended


@contextmanager
def trial(victim: Victim, figures: Figures, calm: Calm, calm_seconds: float) -> Iterator[None]:
    """A time of calm, then the attack, which is the body of the `with`; afterwards the figures are complete."""
    with victim.witness() as witness:
        _await_records(witness, _FIRST_RECORDS)
        ready = time.monotonic()
        _await_records(witness, 2 * _FIRST_RECORDS)
        time.sleep(calm_seconds)
        began = time.monotonic()
        calm.add(ready, began)
        figures.resident_mib = victim.resident_mib()
        with _highest_resident(victim, figures):
            yield
        figures.seconds = time.monotonic() - began
    _note(figures, witness, calm, began)
    figures.judge()


def _await_records(witness: Witness, count: int) -> None:
    eventually(lambda: len(witness.records) > count or bool(witness.problems), True, 20)


def _note(figures: Figures, witness: Witness, calm: Calm, began: float) -> None:
    figures.problems += witness.problems
    in_calm, during = [], []
    for sent, seconds in witness.records:
        if calm.has(sent, seconds):
            in_calm.append(seconds)
        elif sent + seconds > began:
            during.append(seconds)
    if not in_calm or not during:
        figures.problems.append(
            f"the healthy client was served {len(in_calm)} times in calm and {len(during)} times during the attack"
        )
        return
    figures.p99_ms = 1000 * percentile(in_calm, 99)
    figures.p99_during_ms = 1000 * percentile(during, 99)
    figures.slowest_ms = 1000 * max(during)
    figures.records = len(during)


@contextmanager
def _highest_resident(victim: Victim, figures: Figures) -> Iterator[None]:
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(_SAMPLE_SECONDS):
            with suppress(psutil.NoSuchProcess):  # what has become of it is told elsewhere
                figures.highest_mib = max(figures.highest_mib, victim.resident_mib())

    watching = threading.Thread(target=watch, name="resident memory")
    watching.start()
    try:
        yield
    finally:
        is_over.set()
        watching.join()
