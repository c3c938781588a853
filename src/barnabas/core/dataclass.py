"""Slotted dataclasses that are cheap to declare: `__init__` is compiled when it is first looked up.

`dataclasses.dataclass` writes and compiles up to six functions for each class, about a millisecond, and a broker
declares some hundred classes before it is ready, of which it uses a few. This `dataclass` takes fields and slots from
the standard library, builds comparison, hash and repr without compiling anything, and leaves `__init__` to a descriptor
that puts the compiled function in its own place. `fields`, `replace` and `asdict` of the standard library work as ever.

Modules that mypyc compiles (see setup.py) use the standard decorator, the only one that mypyc knows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, TypeVar

T = TypeVar("T")


def slotted(*, slots: Literal[True] = True, frozen: bool = False) -> Callable[[type[T]], type[T]]:
    """Make a class a dataclass with slots; `slots` is there for type checkers."""

    def decorate(cls: type[T]) -> type[T]:
        cls.__doc__ = cls.__doc__ or cls.__name__  # the standard library would compute a signature in its place
        made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
        methods: dict[str, Any] = {"__init__": _Init(made), "__repr__": _repr, **_comparison(made, frozen)}
        if frozen:
            methods |= {"__setattr__": _refuse_set, "__delattr__": _refuse_delete, "__reduce__": _reduce}
        for name, method in methods.items():
            if name not in made.__dict__:
                setattr(made, name, method)
        return made  # type: ignore[no-any-return]

    return decorate


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = slotted


class _Init:
    """Stands for `__init__` until it is looked up, be it for a call or for its signature."""

    __slots__ = ("_cls",)

    def __init__(self, cls: Any) -> None:
        self._cls = cls

    def __get__(self, instance: object, owner: type) -> Any:
        function = self._cls.__init__ = _compile_init(self._cls)
        return function.__get__(instance, owner)


def _compile_init(cls: Any) -> Any:
    fields = dataclasses.fields(cls)
    names: dict[str, Any] = {"_absent": dataclasses.MISSING}
    parameters, lines = ["self"], []
    for field in fields:
        name = value = field.name
        if field.default is not dataclasses.MISSING:
            names[f"_default_{name}"] = field.default
            parameters.append(f"{name}=_default_{name}")
        elif field.default_factory is not dataclasses.MISSING:
            names[f"_make_{name}"] = field.default_factory
            parameters.append(f"{name}=_absent")
            value = f"_make_{name}() if {name} is _absent else {name}"
        else:
            parameters.append(name)
        if _is_frozen(cls):
            names[f"_set_{name}"] = getattr(cls, name).__set__  # the slot itself, past `__setattr__`
            lines.append(f"_set_{name}(self, {value})")
        else:
            lines.append(f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines or ["pass"]), names)
    function = names["__init__"]
    function.__qualname__ = f"{cls.__qualname__}.__init__"
    function.__annotations__ = {field.name: field.type for field in fields} | {"return": None}
    return function


def _is_frozen(cls: Any) -> bool:
    return cls.__setattr__ is _refuse_set


def _comparison(cls: Any, frozen: bool) -> dict[str, Any]:
    compared = [field.name for field in dataclasses.fields(cls) if field.compare]
    values: Callable[[Any], Any] = attrgetter(*compared) if compared else lambda self: ()

    def __eq__(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(values(self))

    return {"__eq__": __eq__, "__hash__": __hash__ if frozen else None}


def _repr(self: Any) -> str:
    shown = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{self.__class__.__qualname__}({shown})"


def _reduce(self: Any) -> tuple[type, tuple[Any, ...]]:
    """For pickle and copy, which would set attributes otherwise."""
    return self.__class__, tuple(getattr(self, field.name) for field in dataclasses.fields(self))


def _refuse_set(self: object, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
