"""Options of the clients: Kafka's names in snake case, checked when the object is made.

They are the keyword parameters of a class, so that editors and mypy know them; `names_options` turns Python's complaint
about an unknown one into an error that names the nearest right one.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable
from difflib import get_close_matches
from functools import wraps
from typing import Any, TypeVar

C = TypeVar("C")


class WrongOption(TypeError, ValueError):
    """An option that does not exist, or a value that it cannot take."""


def names_options(cls: type[C]) -> type[C]:
    """Let a class refuse keywords that it does not know in words that help."""
    plain: Callable[..., None] = cls.__init__
    known = options_of(plain)

    @wraps(plain)
    def checked(self: C, *arguments: Any, **options: Any) -> None:
        check_names(cls.__name__, options, known)
        plain(self, *arguments, **options)

    cls.__init__ = checked  # type: ignore[method-assign,assignment]
    return cls


def options_of(function: Callable[..., object]) -> dict[str, Any]:
    """The options that a function takes, with their defaults."""
    parameters = inspect.signature(function).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}


def check_names(owner: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise WrongOption(f"{owner} has no option {name!r}{_suggestion(name, known)}")


def _suggestion(name: str, known: Collection[str]) -> str:
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).replace(".", "_").lower()
    nearest = get_close_matches(snake, known, 1, 0.5)
    return f"; did you mean {nearest[0]!r}?" if nearest else f"; it has {', '.join(sorted(known))}"


def at_least(name: str, value: int, lowest: int) -> int:
    if value < lowest:
        raise WrongOption(f"{name}={value} is below {lowest}")
    return value


def one_of(name: str, value: object, allowed: Collection[object]) -> None:
    if value not in allowed:
        raise WrongOption(f"{name}={value!r} is none of {', '.join(repr(choice) for choice in allowed)}")
