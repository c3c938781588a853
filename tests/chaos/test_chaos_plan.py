"""A plan is data: the same for the same seed, and with every kind of fault in it."""

from __future__ import annotations

import subprocess
import sys
from itertools import islice
from random import Random

from tests.chaos.faults import FAULTS
from tests.chaos.plan import KINDS, Scene, scenes
from tests.chaos.rounds import SHAPES, Round

ALL = ("embedded", "zookeeper", "faketime")
MANY = 400


def drawn(seed: int, has: tuple[str, ...] = ALL, longest_s: float = 60) -> list[Scene]:
    return list(islice(scenes(Random(seed), has, longest_s), MANY))


def test_a_seed_always_gives_the_same_plan() -> None:
    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)


def test_every_kind_in_every_role_comes_as_often_as_it_weighs_before_they_come_again() -> None:
    every = sorted((kind.name, role) for kind in KINDS for role in kind.roles for _ in range(kind.weight))
    first = [(planned.kind, planned.role) for scene in drawn(7) for planned in scene][: len(every)]
    assert sorted(first) == every


def test_every_kind_can_be_carried_out() -> None:
    assert {kind.name for kind in KINDS} == set(FAULTS)


def test_what_a_round_lacks_is_not_asked_of_it() -> None:
    wanting = {kind.name for kind in KINDS if kind.needs in ("zookeeper", "faketime")}
    assert not wanting & {planned.kind for scene in drawn(7, ("embedded",)) for planned in scene}


def test_what_takes_from_a_replica_comes_alone() -> None:
    alone = {kind.name for kind in KINDS if kind.alone}
    assert all(len(scene) == 1 for scene in drawn(7) if any(planned.kind in alone for planned in scene))
    assert {len(scene) for scene in drawn(7)} == {1, 2, 3}


def test_what_can_hit_only_one_thing_comes_once_in_a_scene() -> None:
    single = {kind.name for kind in KINDS if len(kind.roles) == 1}
    for scene in islice(scenes(Random(7), ALL, 60, only=single), MANY):
        assert len({planned.kind for planned in scene}) == len(scene)


def test_no_fault_lasts_longer_than_it_may() -> None:
    limits = {kind.name: (kind.shortest_s, kind.longest_s) for kind in KINDS}
    for planned in (planned for scene in drawn(7, longest_s=5) for planned in scene):
        shortest, longest = limits[planned.kind]
        assert shortest * 0.999 <= planned.seconds <= max(shortest, min(longest, 5)) * 1.001


def test_rounds_go_through_all_shapes() -> None:
    rounds = [Round(7, number, 100, 5) for number in range(len(SHAPES))]
    assert {each.shape for each in rounds} == set(SHAPES)


def test_a_plan_can_be_shown_without_anything_being_done() -> None:
    command = [sys.executable, "-m", "tests.chaos", "--seed", "7", "--plan", "3"]
    shown = [subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout for _ in range(2)]
    assert shown[0] == shown[1]
    assert len(shown[0].splitlines()) == 4
