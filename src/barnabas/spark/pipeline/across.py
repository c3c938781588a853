"""Which views make rows meet that may come in different batches: Spark's plan of a view over no records tells.

Rows meet where they are grouped, counted or compared with each other, and where two ways from the streams come together
in one node: a join of two streams, of a stream with itself, or a subquery over the stream that is filtered. Rows of a
table are the same for every batch, so that a join with one makes nothing meet; unless it keeps, or leaves out, rows of
the table for which the stream has none, for only all rows of the stream together can tell that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MARK = "_barnabas_stream"
_WITH_STATE = re.compile(r"Aggregate|Distinct|Deduplicate\w*|Join|\w+WithState\w*")
"""Nodes by which rows meet, and for which Spark keeps state between batches."""
_KEEPS_TABLE = "a join that depends on which rows of a table are met"
_IN_ONE_LOAD = {
    "CoGroup": "cogroup",
    "Except": "EXCEPT",
    "FlatMapCoGroupsInArrow": "cogroup",
    "FlatMapCoGroupsInPandas": "cogroup",
    "FlatMapGroupsInArrow": "applyInArrow",
    "FlatMapGroupsInPandas": "applyInPandas",
    "GlobalLimit": "LIMIT",
    "Intersect": "INTERSECT",
    "LocalLimit": "LIMIT",
    "Offset": "OFFSET",
    "Window": "OVER (...)",
    _KEEPS_TABLE: _KEEPS_TABLE,
}
"""Those for which it keeps none, as people write them."""
_SIDE_BY_SIDE = ("Union", "WithCTE")
"""Nodes with several inputs whose rows do not meet."""


def marked(stream: DataFrame) -> DataFrame:
    """The rows of a stream, to be known again in the plans of the views that are made of them."""
    return stream.alias(_MARK)


def meetings(view: DataFrame) -> set[str]:
    """The nodes of Spark's by which rows of streams meet; none: a view that can be cut anywhere between rows."""
    found: set[str] = set()
    frame: Any = view
    _reaches(frame._jdf.queryExecution().analyzed(), {}, found)
    return found


def one_load_only(nodes: set[str]) -> str | None:
    """What, among the nodes by which rows meet, can be answered only where one batch has all rows."""
    found = next((name for name in sorted(nodes) if not _WITH_STATE.fullmatch(name)), None)
    return None if found is None else _IN_ONE_LOAD.get(found, "a subquery over a stream")


def _reaches(node: Any, named: dict[int, bool], found: set[str]) -> bool:
    """Whether the rows of a node come from a stream; `named` has that of the statements under WITH, by their ids."""
    name = str(node.nodeName()).partition(" ")[0]  # without the ALL of EXCEPT ALL
    if name == "SubqueryAlias" and node.alias() == _MARK:
        return True
    if name == "CTERelationRef":
        return named.get(node.cteId(), False)  # of a statement that names itself, what it begins with counts
    inputs = [_reaches(each, named, found) for each in (*_all(node.children()), *_all(node.subqueries()))]
    if name == "CTERelationDef":
        named[node.id()] = any(inputs)
    if name == "Join" and _keeps_table(str(node.joinType()), *inputs[:2]):
        found.add(_KEEPS_TABLE)
    is_alone_enough = name in _IN_ONE_LOAD or (_WITH_STATE.fullmatch(name) and name != "Join")
    if (is_alone_enough and any(inputs)) or (sum(inputs) > 1 and name not in _SIDE_BY_SIDE):
        found.add(name)
    return any(inputs)


def _keeps_table(kind: str, is_left_stream: bool, is_right_stream: bool) -> bool:
    if is_left_stream == is_right_stream:
        return False
    by_left_rows = ("LeftOuter", "LeftSemi", "LeftAnti")
    return kind == "FullOuter" or kind in (("RightOuter",) if is_left_stream else by_left_rows)


def _all(nodes: Any) -> Iterator[Any]:
    iterator = nodes.iterator()
    while iterator.hasNext():
        yield iterator.next()
