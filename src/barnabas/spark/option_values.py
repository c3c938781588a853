"""What the values of options mean: texts to numbers, truths, durations; an error names option, value and what is right.

Each function takes the name of the option, for the error, and the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeAlias, TypeVar

from barnabas.client.options import WrongOption

T = TypeVar("T")
Parse: TypeAlias = Callable[[str, str], T]

_DURATION = re.compile(r"(\d+)\s*(us|ms|s|m|min|h|d)?")
_UNIT_MS = {"us": 0.001, "ms": 1, None: 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_BOOLEANS = {"true": True, "false": False}


def wrong(option: str, given: str, right: str) -> WrongOption:
    return WrongOption(f"{option}={given!r} is wrong: it must be {right}")


def text(option: str, given: str) -> str:
    return given


def boolean(option: str, given: str) -> bool:
    try:
        return _BOOLEANS[given.strip().lower()]
    except KeyError:
        raise wrong(option, given, "true or false") from None


def number(lowest: int = 0) -> Parse[int]:
    def parse(option: str, given: str) -> int:
        try:
            value = int(given)
        except ValueError:
            value = lowest - 1
        if value < lowest:
            raise wrong(option, given, f"a whole number from {lowest} on")
        return value

    return parse


def one_of(values: Mapping[str, T]) -> Parse[T]:
    def parse(option: str, given: str) -> T:
        try:
            return values[given.strip().lower()]
        except KeyError:
            raise wrong(option, given, f"one of {', '.join(values)}") from None

    return parse


def milliseconds(option: str, given: str) -> int:
    """A duration as Spark writes it; a bare number is milliseconds."""
    match = _DURATION.fullmatch(given.strip().lower())
    if match is None:
        raise wrong(option, given, "a duration such as 500ms, 30s, 15m or 2h")
    return int(int(match[1]) * _UNIT_MS[match[2]])


def words(option: str, given: str) -> tuple[str, ...]:
    """What stands between commas."""
    found = tuple(dict.fromkeys(filter(None, (part.strip() for part in given.split(",")))))
    if not found:
        raise wrong(option, given, "one or more names with commas between them")
    return found


def check_known(given: Iterable[str], known: Collection[str], what: str = "option") -> None:
    """Spark hands over the names of options in lower case: `known` has them as people write them."""
    right = {name.lower(): name for name in known}
    for name in given:
        if name.lower() not in right:
            nearest = get_close_matches(name.lower(), right, 1, 0.5)
            hint = f"did you mean {right[nearest[0]]!r}?" if nearest else f"there are {', '.join(sorted(known))}"
            raise WrongOption(f"no {what} {name!r}; {hint}")


def parse_all(options: Mapping[str, str], table: Mapping[str, Parse[Any]]) -> dict[str, Any]:
    """The values of the options that are given, by the names of the table."""
    return {name: parse(name, options[name.lower()]) for name, parse in table.items() if name.lower() in options}
