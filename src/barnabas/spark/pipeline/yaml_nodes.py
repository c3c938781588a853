"""From YAML to frozen dataclasses, with errors that give the line and the nearest right word.

PyYAML's nodes know where they stand in the file, so values are read from nodes and not from what `safe_load` makes of
them. The fields of a dataclass are the keys of a mapping (a field `from_` is the key `from`); its type hints say what
each may hold. `${NAME}` and `${NAME:-default}` stand for variables of the environment.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import yaml

from barnabas.spark.pipeline.errors import PipelineError

_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\}")
_TAG = "tag:yaml.org,2002:"


class DefinitionError(PipelineError):
    """A pipeline's file that is wrong, and where."""

    def __init__(self, file: str, line: int, message: str) -> None:
        super().__init__(f"{file}:{line}: {message}")
        self.line = line


class Misfit(ValueError):
    """Raised by a dataclass for values that do not go together; `path` leads to the culprit from its own mapping."""

    def __init__(self, message: str, *path: str | int) -> None:
        super().__init__(message)
        self.path = path


def nearest(word: str, known: Sequence[str]) -> str:
    """The end of a sentence about an unknown word: the one that was meant, or all there are."""
    found = get_close_matches(word, known, 1, 0.5)
    if found:
        return f"; did you mean {found[0]!r}?"
    return f"; there is {', '.join(sorted(known))}" if known else ""


def key_of(field: dataclasses.Field[Any]) -> str:
    return field.name.rstrip("_")


class NodeReader:
    """Reads the values of one file."""

    def __init__(self, file: str, environment: Mapping[str, str]) -> None:
        self._file = file
        self._environment = environment
        self._special: dict[type, Callable[[yaml.Node, str], Any]] = {}

    def add_special(self, kind: type, read: Callable[[yaml.Node, str], Any]) -> None:
        """Let values of a type be read by a function of the node and of what the value is called."""
        self._special[kind] = read

    def root(self, text: str) -> yaml.Node:
        try:
            node: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            raise DefinitionError(self._file, mark.line + 1 if mark else 1, f"not YAML: {error.problem}") from None
        except yaml.YAMLError as error:
            raise DefinitionError(self._file, 1, f"not YAML: {error}") from None
        if node is None:
            raise DefinitionError(self._file, 1, "the file is empty")
        return node

    def error(self, node: yaml.Node, message: str) -> DefinitionError:
        return DefinitionError(self._file, node.start_mark.line + 1, message)

    def read(self, node: yaml.Node, kind: Any, what: str) -> Any:
        """The value of a node as the type demands it; `what` is its name in errors."""
        if kind in self._special:
            return self._special[kind](node, what)
        if dataclasses.is_dataclass(kind):
            return self.read_parts(node, what, kind)[0]
        origin, arguments = get_origin(kind), get_args(kind)
        if origin in (Union, UnionType):
            return self._read_optional(node, arguments, what)
        if origin is tuple:
            return self._read_tuple(node, arguments[0], what)
        if origin is not None and issubclass(origin, Mapping):
            return {key: self.read(value, arguments[1], f"{what}.{key}") for key, value in self._pairs(node, what)}
        return self._read_scalar(node, kind, what)

    def read_parts(self, node: yaml.Node, what: str, *kinds: Any) -> list[Any]:
        """Several dataclasses from one mapping, each of which takes the keys that it knows."""
        hints = {kind: get_type_hints(kind) for kind in kinds}
        owners = {key_of(field): (kind, field) for kind in kinds for field in dataclasses.fields(kind) if field.init}
        given: dict[type, dict[str, Any]] = {kind: {} for kind in kinds}
        for key, value in self._pairs(node, what):
            if key not in owners:
                problem = f"{what} has no key {key!r}{nearest(key, list(owners))}"
                raise self.error(self._key_node(node, key), problem)
            kind, field = owners[key]
            given[kind][field.name] = self.read(value, hints[kind][field.name], key)
        for key, (kind, field) in owners.items():
            if field.name not in given[kind] and _is_required(field):
                raise self.error(node, f"{what} lacks the key {key!r}")
        try:
            return [kind(**given[kind]) for kind in kinds]
        except Misfit as misfit:
            raise self.error(self._follow(node, misfit.path), str(misfit)) from None
        except ValueError as error:
            raise self.error(node, f"{what}: {error}") from None

    def text_of(self, node: yaml.Node, key: str) -> str | None:
        """The text of a mapping's key, if it is there."""
        value = next((value for name, value in self._pairs(node, "this") if name == key), None)
        return None if value is None else str(self.read(value, str, key))

    def node_of(self, node: yaml.Node, key: str) -> yaml.Node:
        return self._follow(node, (key,))

    def _read_optional(self, node: yaml.Node, arguments: tuple[Any, ...], what: str) -> Any:
        (kind,) = (argument for argument in arguments if argument is not NoneType)
        return None if node.tag == _TAG + "null" else self.read(node, kind, what)

    def _read_tuple(self, node: yaml.Node, kind: Any, what: str) -> tuple[Any, ...]:
        if isinstance(node, yaml.SequenceNode):
            return tuple(self.read(item, kind, f"an entry of {what}") for item in node.value)
        if isinstance(node, yaml.ScalarNode) and kind is str:
            return (self.read(node, str, what),)  # one word needs no brackets
        raise self.error(node, f"{what} is {_describe(node)}, not a list")

    def _read_scalar(self, node: yaml.Node, kind: Any, what: str) -> Any:
        if not isinstance(node, yaml.ScalarNode) or node.tag == _TAG + "null":
            raise self.error(node, f"{what} is {_describe(node)}, not {_NAMES.get(kind, 'a word')}")
        text = self._expand(node)
        if kind is str:
            return text
        if issubclass(kind, StrEnum):
            return self._read_choice(node, text, kind, what)
        value = yaml.safe_load(text) if node.style is None else text
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise self.error(node, f"{what} is {text!r}, not {_NAMES[kind]}")
        return value

    def _read_choice(self, node: yaml.Node, text: str, kind: type[StrEnum], what: str) -> StrEnum:
        choices = [choice.value for choice in kind]
        if text not in choices:
            raise self.error(node, f"{what} cannot be {text!r}{nearest(text, choices)}")
        return kind(text)

    def _expand(self, node: yaml.ScalarNode) -> str:
        def value(match: re.Match[str]) -> str:
            name = match["name"]
            if name not in self._environment and match["default"] is None:
                problem = f"the environment has no variable {name!r}; ${{{name}:-...}} gives a default"
                raise self.error(node, problem)
            return self._environment.get(name, match["default"])

        return _VARIABLE.sub(value, node.value)

    def _pairs(self, node: yaml.Node, what: str) -> list[tuple[str, yaml.Node]]:
        if not isinstance(node, yaml.MappingNode):
            raise self.error(node, f"{what} is {_describe(node)}, not a mapping of keys to values")
        seen: dict[str, yaml.Node] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self.error(key, f"a key of {what} is {_describe(key)}, not a word")
            if key.value in seen:
                raise self.error(key, f"{what} has the key {key.value!r} twice")
            seen[key.value] = value
        return list(seen.items())

    def _key_node(self, node: yaml.Node, name: str) -> yaml.Node:
        return next((key for key, _ in node.value if key.value == name), node)

    def _follow(self, node: yaml.Node, path: tuple[str | int, ...]) -> yaml.Node:
        """The node at the end of a path, or the last one on the way that is there."""
        for step in path:
            if isinstance(step, int) and isinstance(node, yaml.SequenceNode) and step < len(node.value):
                node = node.value[step]
            elif isinstance(node, yaml.MappingNode):
                node = next((value for key, value in node.value if key.value == step), node)
        return node


_NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _describe(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return "empty" if node.tag == _TAG + "null" else repr(node.value)
