"""What goes wrong in a run, as data: drawn from the seed before it begins, printed, read back, and cut.

A plan is a list of steps, each some time after the one before. All that a fault needs to know stands in it, so that a
run without one of its steps has the others unchanged. A plan is written as JSON, one line per step:

    {"after_s": 0.731, "fault": "Crash", "broker": 2, "down_s": 1.204, "operations": 17}
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import get_args

CONTROLLER = 0
"""Instead of a broker: whoever is the controller then."""
OPERATIONS_TO_FAULT = 60
CLIENTS = "clients"


@dataclass(frozen=True, slots=True)
class Crash:
    """A broker dies, in the middle of the so-manieth disk operation or at once, and is started again."""

    broker: int
    down_s: float
    operations: int = 0
    power_cut: bool = False
    starting: int = 0
    """It dies once more while it starts, in this operation."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A broker is stopped in good order, and started again."""

    broker: int
    down_s: float


@dataclass(frozen=True, slots=True)
class Suspend:
    """A broker's process stands still, as under SIGSTOP."""

    broker: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Cut:
    """Nothing passes these ways, each `from>to` of broker ids or the clients."""

    ways: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class CutOffStore:
    broker: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Disturb:
    """A connection is reset, stalled, or lost without a word: that at this place, from 0 to 1, among all.

    With `is_wide`, so are all others between its two machines; new ones pass. With `of_clients` it is one of theirs.
    """

    how: str
    where: float
    seconds: float = 0.0
    is_wide: bool = False
    of_clients: bool = False


@dataclass(frozen=True, slots=True)
class SlowDisk:
    broker: int
    seconds: float
    factor: int


@dataclass(frozen=True, slots=True)
class BreakDisk:
    """One operation fails, which takes the directory offline; after a while the broker is started again.

    With `is_full` no later one that needs room succeeds either, until then.
    """

    broker: int
    operations: int
    seconds: float
    down_s: float
    is_full: bool = False
    is_orderly: bool = False


@dataclass(frozen=True, slots=True)
class Elect:
    """Somebody asks for the preferred leaders."""


@dataclass(frozen=True, slots=True)
class Move:
    """Somebody asks for other replicas of a topic's first partition."""

    topic: str
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Blackout:
    """All brokers go down together, after the clients have finished, and come back."""

    is_orderly: bool


@dataclass(frozen=True, slots=True)
class Join:
    """A member joins the group."""


@dataclass(frozen=True, slots=True)
class Part:
    """A member goes: that at this place, from 0 to 1, among all; with or without a word."""

    where: float
    leaves: bool


@dataclass(frozen=True, slots=True)
class Silence:
    """A member does not poll, but lives."""

    where: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Freeze:
    """A member's process stands still, as under SIGSTOP."""

    where: float
    seconds: float


Fault = (
    Crash
    | Stop
    | Suspend
    | Cut
    | CutOffStore
    | Disturb
    | SlowDisk
    | BreakDisk
    | Elect
    | Move
    | Blackout
    | Join
    | Part
    | Silence
    | Freeze
)
_FAULTS: dict[str, Callable[..., Fault]] = {kind.__name__: kind for kind in get_args(Fault)}


@dataclass(frozen=True, slots=True)
class Step:
    after_s: float
    fault: Fault


Plan = tuple[Step, ...]

Kinds = Sequence[tuple[int, Callable[[random.Random], Sequence[Fault | Step]]]]
"""How likely each kind of fault is, and how one is drawn; several happen at the same moment, or step by step."""


def draw(rng: random.Random, kinds: Kinds, count: int, pause_s: float) -> Plan:
    """So many faults, with pauses of so many seconds on average before each; some follow each other closely."""
    steps: list[Step] = []
    weights = [weight for weight, _ in kinds]
    for _ in range(count):
        after_s = some(rng, pause_s * rng.choice((0.02, 2, 4)))
        ((_, draw_faults),) = rng.choices(kinds, weights)
        for each in draw_faults(rng):
            step = each if isinstance(each, Step) else Step(0.0, each)
            steps.append(replace(step, after_s=round(after_s + step.after_s, 3)))
            after_s = 0.0
    return tuple(steps)


def some(rng: random.Random, limit: float) -> float:
    """A time up to this limit, in whole milliseconds."""
    return round(rng.random() * limit, 3)


def chosen(where: float, count: int) -> int:
    """The index at a place from 0 to 1."""
    return min(int(where * count), count - 1)


def draw_operations(rng: random.Random, chance: float) -> int:
    """In which disk operation something happens, if at all."""
    return rng.randint(1, OPERATIONS_TO_FAULT) if rng.random() < chance else 0


def draw_disturbance(rng: random.Random, *kinds: str) -> Disturb:
    how = rng.choice(kinds or ("reset", "stall", "lose"))
    return Disturb(how, round(rng.random(), 4), some(rng, 60), is_wide=rng.random() < 0.3)


def draw_broken_disk(rng: random.Random, broker: int) -> BreakDisk:
    return BreakDisk(
        broker,
        operations=rng.randint(1, OPERATIONS_TO_FAULT // 2),
        seconds=some(rng, 20),
        down_s=some(rng, 20),
        is_full=rng.random() < 0.5,
        is_orderly=rng.random() < 0.5,
    )


def written(plan: Plan) -> str:
    return "".join(
        json.dumps({"after_s": step.after_s, "fault": type(step.fault).__name__, **_details(step.fault)}) + "\n"
        for step in plan
    )


def _details(fault: Fault) -> dict[str, object]:
    usual = {field.name: field.default for field in fields(fault)}
    return {name: value for name, value in asdict(fault).items() if value != usual[name]}


def read(text: str) -> Plan:
    return tuple(_step(json.loads(line)) for line in text.splitlines() if line.strip())


def _step(found: dict[str, object]) -> Step:
    after_s, kind = found.pop("after_s"), found.pop("fault")
    assert isinstance(after_s, int | float)
    details = {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
    return Step(after_s, _FAULTS[str(kind)](**details))
