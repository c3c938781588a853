"""Slotted dataclasses with a lazy `__init__` behave like those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, fields, replace
from pathlib import Path

import pytest

from barnabas.core.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list)
    note: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Point3(Point):
    z: int = 0


@dataclass(slots=True)
class Counter:
    count: int = 0


@dataclass(frozen=True, slots=True)
class Nothing:
    pass


@dataclass(slots=True)
class Doubled:
    value: int

    def __post_init__(self) -> None:
        self.value *= 2


def test_fields_are_set_by_position_by_name_and_by_default() -> None:
    point = Point(1, tags=["a"])
    assert (point.x, point.y, point.tags, point.note) == (1, 0, ["a"], "")
    assert Point(1).tags is not Point(1).tags
    assert Point3(1, 2, z=3).z == 3
    assert Doubled(2).value == 4
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'w'"):
        Point(1, w=2)  # type: ignore[call-arg]


def test_objects_compare_by_class_and_compared_fields() -> None:
    assert Point(1, 2) == Point(1, 2, note="ignored")
    assert Point(1, 2) != Point(1, 3)
    assert Point(1, 2) != Point3(1, 2)
    assert Point(1) != object()
    assert Nothing() == Nothing()
    assert hash(Nothing()) == hash(Nothing())


def test_frozen_objects_are_hashable_and_mutable_ones_are_not() -> None:
    assert len({Point(1, tags=()), Point(1, tags=()), Point(2, tags=())}) == 2  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unhashable type: 'Counter'"):
        hash(Counter())


def test_frozen_objects_refuse_changes() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    counter = Counter()
    counter.count += 1
    assert counter == Counter(1)
    assert not hasattr(counter, "__dict__")


def test_repr_names_the_shown_fields() -> None:
    assert repr(Point(1, note="hidden")) == "Point(x=1, y=0, tags=[])"
    assert repr(Nothing()) == "Nothing()"


def test_functions_of_dataclasses_apply() -> None:
    assert [each.name for each in fields(Point3)] == ["x", "y", "tags", "note", "z"]
    assert replace(Point(1), y=5) == Point(1, 5)
    assert dataclasses.asdict(Counter(2)) == {"count": 2}
    match Point(3, 4):
        case Point(x, y):
            assert (x, y) == (3, 4)


@pytest.mark.parametrize("remade", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_objects_can_be_copied_and_pickled(remade: Callable[[object], object]) -> None:
    for value in (Point(1, 2, ["a"], "note"), Counter(7)):
        assert remade(value) == value
    assert remade(Point(1, note="kept")).note == "kept"  # type: ignore[attr-defined]


def test_signature_is_that_of_the_fields() -> None:
    @dataclass(frozen=True, slots=True)
    class Unused:
        name: str
        size: int = 3

    assert str(inspect.signature(Unused)) == "(name: 'str', size: 'int' = 3) -> None"


def test_init_is_compiled_on_first_use() -> None:
    @dataclass(slots=True)
    class Late:
        value: int

    assert not inspect.isfunction(vars(Late)["__init__"])
    assert Late(1).value == 1
    assert inspect.isfunction(vars(Late)["__init__"])


def test_objects_made_without_init_can_be_compared() -> None:
    """As a decoder makes them, and before anything was made in another way."""
    program = """
from barnabas.wire.messages.k12_heartbeat import HeartbeatResponse
made = object.__new__(HeartbeatResponse)
made.throttle_time_ms, made.error_code = 0, 0
print(repr(made), made == HeartbeatResponse())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "HeartbeatResponse(throttle_time_ms=0, error_code=0) True\n"


def test_modules_that_mypyc_compiles_use_the_standard_decorator() -> None:
    """Their classes are native: mypyc would take the decorator for the standard one, whose name type checkers see."""
    root = Path(__file__).parents[3]
    compiled = re.findall(r'"(\w+(?:/\w+)+\.py)"', (root / "setup.py").read_text())
    assert "net/server.py" in compiled
    sources = {name: (root / "src/barnabas" / name).read_text() for name in compiled}
    assert [name for name, source in sources.items() if "barnabas.core.dataclass" in source] == []
