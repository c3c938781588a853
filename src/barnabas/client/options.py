"""Options of the clients: Kafka's names in snake case, checked when the object is made.

They are the keyword parameters of a class, so that editors and mypy know them; `names_options` turns Python's complaint
about an unknown one into an error that names the nearest right one.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection
from difflib import get_close_matches
from functools import wraps
from typing import Any, TypeVar

C = TypeVar("C")


class WrongOption(TypeError, ValueError):
    """An option that does not exist, or a value that it cannot take."""


def names_options(cls: type[C]) -> type[C]:
    """Let a class refuse keywords that it does not know in words that help."""
    plain: Callable[..., None] = cls.__init__
    known = [p.name for p in inspect.signature(plain).parameters.values() if p.kind is p.KEYWORD_ONLY]

    @wraps(plain)
    def checked(self: C, *arguments: Any, **options: Any) -> None:
        for name in options:
            if name not in known:
                raise WrongOption(f"{cls.__name__} has no option {name!r}{_suggestion(name, known)}")
        plain(self, *arguments, **options)

    cls.__init__ = checked  # type: ignore[method-assign,assignment]
    return cls


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
