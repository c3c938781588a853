"""What will happen to a cluster, as data: drawn from a seed before anything starts.

A plan is a list of *scenes*. A scene begins with everything in order, has one fault or several that overlap, and ends
with all of them mended. Whom a fault hits is named by a role, for who leads is known only when it is carried out. All
kinds of faults come, in each of their roles and as often as they weigh, before they come again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

BROKERS = ("leader", "controller", "coordinator", "any", "all")
ONE_BROKER = ("leader", "follower", "controller", "coordinator", "any")


class Kind(NamedTuple):
    """A kind of fault: whom it may hit, and how long it may last."""

    name: str
    roles: tuple[str, ...]
    shortest_s: float
    longest_s: float
    needs: str = ""
    """What a round must have for it: a store, or a library."""
    alone: bool = False
    """It takes from a replica what another fault must not take from the others meanwhile."""
    weight: int = 1


KINDS = (
    Kind("kill", BROKERS, 0.1, 6, weight=3),
    Kind("crash again and again", ("leader", "controller", "any"), 3, 12),
    Kind("stop", BROKERS, 0.1, 6),
    Kind("pause", ONE_BROKER, 1, 60),
    Kind("cut off", ("leader", "follower", "controller", "coordinator"), 1, 30),
    Kind("cut off from brokers", ("leader", "controller"), 1, 30),
    Kind("cut outgoing", ("leader", "follower", "controller"), 1, 30),
    Kind("cut incoming", ("leader", "follower", "controller"), 1, 30),
    Kind("cut all outgoing", ("leader", "controller", "coordinator"), 1, 30),
    Kind("cut all incoming", ("leader", "controller", "coordinator"), 1, 30),
    Kind("ring", ("all",), 1, 30),
    Kind("cut off from zookeeper", ("leader", "controller", "all"), 1, 30, "zookeeper"),
    Kind("cut off zookeeper's leader", ("zookeeper",), 1, 20, "zookeeper"),
    Kind("kill zookeeper's leader", ("zookeeper",), 1, 15, "zookeeper"),
    Kind("fill disk", ("small disk",), 2, 15),
    Kind("flip a bit in a segment", ("leader", "follower"), 1, 3, alone=True),
    Kind("cut the end of a segment", ("leader", "follower"), 0.1, 3, alone=True),
    Kind("damage an index", ("any",), 0.1, 3, alone=True),
    Kind("damage a checkpoint", ("any",), 0.1, 3, alone=True),
    Kind("step clock", ("leader", "controller", "coordinator", "all"), 2, 20, "faketime"),
    Kind("add and remove a broker", ("new",), 2, 10),
    Kind("move replicas", ("all",), 2, 10),
)


@dataclass(frozen=True, slots=True)
class Planned:
    """One fault: when it begins in its scene, how long it lasts, and what chooses between things that are alike."""

    kind: str
    role: str
    after_s: float
    seconds: float
    choice: int

    def __str__(self) -> str:
        return f"{self.kind} ({self.role}) after {self.after_s:.1f} s for {self.seconds:.1f} s"


Scene = tuple[Planned, ...]


def scenes(random: Random, has: Iterable[str], longest_s: float, only: Collection[str] = ()) -> Iterator[Scene]:
    """Without end. `has` is what a round has to offer to kinds that need something; `only` are names of kinds."""
    offered = {"", *has}
    kinds = [kind for kind in KINDS if kind.needs in offered and (not only or kind.name in only)]
    if not kinds:
        raise ValueError(f"none of {', '.join(only)} can happen here; there are {', '.join(k.name for k in KINDS)}")
    bag: list[tuple[Kind, str]] = []
    while True:
        count = random.choices((1, 2, 3), (5, 3, 2))[0]
        chosen: list[tuple[Kind, str]] = []
        while len(chosen) < count:
            if not bag:
                bag = [(kind, role) for kind in kinds for role in kind.roles for _ in range(kind.weight)]
                random.shuffle(bag)
            if chosen and not _go_together(bag[-1][0], [kind for kind, _ in chosen]):
                break
            chosen.append(bag.pop())
        yield tuple(
            Planned(
                kind.name,
                role,
                0.0 if first else random.uniform(0, 3),
                _duration(random, kind.shortest_s, min(kind.longest_s, longest_s)),
                random.getrandbits(32),
            )
            for first, (kind, role) in zip((True, False, False), chosen)
        )


def _go_together(kind: Kind, others: list[Kind]) -> bool:
    """What can hit only one thing does not hit it twice."""
    return not (kind.alone or others[0].alone or (len(kind.roles) == 1 and kind in others))


def _duration(random: Random, shortest: float, longest: float) -> float:
    """Short ones are as likely as long ones of ten times the length."""
    return math.exp(random.uniform(math.log(shortest), math.log(max(shortest, longest))))
