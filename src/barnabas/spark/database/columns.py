"""Columns that rows have, columns that a table has, and whether the ones fit the others."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from barnabas.spark.pipeline.errors import SinkError


class Kind(StrEnum):
    """What a column holds, as far as databases tell it apart."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    REAL = "real"
    DECIMAL = "decimal"
    TEXT = "text"
    BINARY = "binary"
    DATE = "date"
    TIMESTAMP = "timestamp"


_KINDS = {
    "boolean": Kind.BOOLEAN,
    "tinyint": Kind.INTEGER,
    "smallint": Kind.INTEGER,
    "int": Kind.INTEGER,
    "bigint": Kind.INTEGER,
    "float": Kind.REAL,
    "double": Kind.REAL,
    "decimal": Kind.DECIMAL,
    "string": Kind.TEXT,
    "binary": Kind.BINARY,
    "date": Kind.DATE,
    "timestamp": Kind.TIMESTAMP,
    "timestamp_ntz": Kind.TIMESTAMP,
}
"""By the word that Spark's name of a type begins with."""


@dataclass(frozen=True, slots=True)
class RowColumn:
    """A column of the rows: `type` is Spark's name of it, such as `decimal(10,2)`."""

    name: str
    type: str

    @property
    def word(self) -> str:
        """The type without its parameters."""
        return self.type.partition("(")[0]

    @property
    def kind(self) -> Kind:
        return _KINDS[self.word]


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table: `accepts` is what the database takes for it without a cast."""

    name: str
    type: str
    is_required: bool
    accepts: Collection[Kind]


def row_columns(types: Sequence[tuple[str, str]]) -> tuple[RowColumn, ...]:
    """The columns of a frame (its `dtypes`), if a table can hold them."""
    columns = tuple(RowColumn(name, spark_type) for name, spark_type in types)
    for column in columns:
        if column.word not in _KINDS:
            raise SinkError(
                f"column '{column.name}' is of type {column.type}, which a table cannot hold:"
                f" take it apart in a transform, or write to_json({column.name})"
            )
    return columns


def check_fit(table: str, existing: Sequence[TableColumn], rows: Sequence[RowColumn]) -> None:
    """Raise a SinkError that names the first column of the rows, or of the table, that finds no partner."""
    by_name: Mapping[str, TableColumn] = {column.name: column for column in existing}
    for column in rows:
        partner = by_name.get(column.name)
        if partner is None:
            raise SinkError(
                f"table '{table}' has no column '{column.name}'{nearest(column.name, by_name)}:"
                " add it to the table, or leave it out of the transform"
            )
        if column.kind not in partner.accepts:
            raise SinkError(
                f"column '{column.name}' of table '{table}' is {partner.type}, and the rows have {column.type}:"
                " cast it in the transform, or change the table"
            )
    given = {column.name for column in rows}
    for partner in existing:
        if partner.is_required and partner.name not in given:
            raise SinkError(
                f"column '{partner.name}' of table '{table}' is NOT NULL without a default,"
                f" and the rows have no such column{nearest(partner.name, given)}"
            )


def nearest(name: str, names: Collection[str]) -> str:
    """A hint in brackets: the nearest of the names, or all of them."""
    close = difflib.get_close_matches(name, names, n=1)
    return f" (nearest: '{close[0]}')" if close else f" (there are: {', '.join(sorted(names)) or 'none'})"
