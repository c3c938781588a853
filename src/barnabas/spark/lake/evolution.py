"""How the columns of a lake may change. Pure, on Spark's JSON of a schema.

The columns of a lake only grow: new ones go to the end, those that rows do not have any more are null from then on, and
everything may be null. So each file's columns are among the lake's, and one schema reads all files.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any

from barnabas.spark.lake.errors import WrongSchema

Type = Any
"""A name such as "long", or a dict of a struct, an array or a map."""
Schema = Mapping[str, Any]

_WIDER: Mapping[str, Collection[str]] = {
    "byte": ("short", "integer", "long"),
    "short": ("integer", "long"),
    "integer": ("long", "double"),
    "float": ("double",),
}
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")


class Evolution(StrEnum):
    STRICT = "strict"
    """Rows have the columns of the lake, no more and no fewer."""
    ADD = "add"
    """New columns are added, and columns may be missing."""
    WIDEN = "widen"
    """As `add`, and numbers may grow, as from integer to long."""


def evolved(lake: Schema | None, rows: Schema, policy: Evolution) -> Schema:
    """The columns of the lake after these rows, or WrongSchema."""
    nullable: Schema = _nullable(rows)
    return nullable if lake is None else _merged_struct(lake, nullable, policy, "")


def _merged_struct(lake: Schema, rows: Schema, policy: Evolution, path: str) -> Schema:
    given = {field["name"]: field for field in rows["fields"]}
    known = {field["name"].lower(): field["name"] for field in lake["fields"]}
    fields = []
    for field in lake["fields"]:
        name = field["name"]
        found = given.pop(name, None)
        if found is None:
            if policy is Evolution.STRICT:
                raise WrongSchema(f"column {path + name!r} of the lake is missing in the rows")
            fields.append(field)
        else:
            fields.append({**field, "type": _merged(field["type"], found["type"], policy, path + name)})
    for name, field in given.items():
        if name.lower() in known:
            raise WrongSchema(
                f"column {path + name!r} differs from {path + known[name.lower()]!r} of the lake by case only"
            )
        if policy is Evolution.STRICT:
            raise WrongSchema(f"column {path + name!r} is not in the lake; evolution is {policy}")
        fields.append(field)
    return {"type": "struct", "fields": fields}


def _merged(lake: Type, rows: Type, policy: Evolution, path: str) -> Type:
    if lake == rows:
        return lake
    if isinstance(lake, dict) and isinstance(rows, dict) and lake["type"] == rows["type"]:
        match lake["type"]:
            case "struct":
                return _merged_struct(lake, rows, policy, f"{path}.")
            case "array":
                return {**lake, "elementType": _merged(lake["elementType"], rows["elementType"], policy, f"{path}[]")}
            case "map":
                if lake["keyType"] == rows["keyType"]:
                    return {**lake, "valueType": _merged(lake["valueType"], rows["valueType"], policy, f"{path}{{}}")}
    if _is_wider(lake, rows):
        return lake
    if _is_wider(rows, lake):
        if policy is Evolution.WIDEN:
            return rows
        raise WrongSchema(f"column {path!r} is {_name(rows)}, and {_name(lake)} in the lake; evolution=widen allows it")
    raise WrongSchema(f"column {path!r} is {_name(rows)}, and {_name(lake)} in the lake")


def _is_wider(wide: Type, narrow: Type) -> bool:
    """Whether a value of one type always fits the other."""
    if isinstance(wide, dict) or isinstance(narrow, dict):
        return False
    if wide in _WIDER.get(narrow, ()):
        return True
    large, small = _DECIMAL.fullmatch(wide), _DECIMAL.fullmatch(narrow)
    if large is None or small is None:
        return False
    (precision, scale), (less, fewer) = map(int, large.groups()), map(int, small.groups())
    return scale >= fewer and precision - scale >= less - fewer


def _nullable(given: Type) -> Any:
    """The type without what says that something cannot be null, and without comments."""
    if not isinstance(given, dict):
        return given
    match given["type"]:
        case "struct":
            fields = [
                {"name": field["name"], "type": _nullable(field["type"]), "nullable": True, "metadata": {}}
                for field in given["fields"]
            ]
            return {"type": "struct", "fields": fields}
        case "array":
            return {"type": "array", "elementType": _nullable(given["elementType"]), "containsNull": True}
        case "map":
            key, value = _nullable(given["keyType"]), _nullable(given["valueType"])
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    return given


def _name(given: Type) -> str:
    return given["type"] if isinstance(given, dict) else str(given)
